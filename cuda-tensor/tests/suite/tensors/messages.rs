//! The messages of shapes that do not fit. Each names the operation that the program called.

use cuda_tensor::{Activation, Binary, Comparison, Tensor, TensorOps, f16};

use cuda_async::{Device, Error, prelude::*};

fn stream() -> cuda_async::Stream {
    let device: Device = cuda_async::open_blocking("cpu").unwrap();
    device.new_stream().unwrap()
}

#[track_caller]
fn message<O: DeviceOp>(op: O) -> String {
    let error = op.map(drop).sync_on(&stream()).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. } | Error::Misuse { .. }), "{error:?}");
    error.to_string()
}

fn zeros_of(shape: &[usize]) -> impl DeviceOp<Output = Tensor<f32>> + use<> {
    Tensor::<f32>::zeros(shape.to_vec())
}

#[test]
fn errors_about_shapes_name_the_operation() {
    let x = || zeros_of(&[2, 3]);
    let square = || zeros_of(&[2, 2]);
    let empty = || zeros_of(&[0, 3]);
    let two_rows = || zeros_of(&[1, 3]).try_map(|x| x.broadcast([2, 3]));
    let none = |dim: usize| {
        format!(
            "there is no dimension {dim} in the shape [2, 3]; its rank is 2, and dimensions are counted from 0"
        )
    };
    let together = |other: &str| {
        format!(
            "the shapes [2, 3] and {other} cannot be broadcast together: from the last dimension on, two sizes must be the same, or one must be 1"
        )
    };
    let into = |other: &str| {
        format!(
            "the shape {other} cannot be broadcast to [2, 3]: from the last dimension on, each size must be 1 or the same"
        )
    };
    let broadcast = "the target is broadcast: several of its elements are the same memory; copy it first, with `dup()`".to_owned();
    let no_elements =
        "the dimension has no elements, so there is no largest or smallest one; reduce a dimension that has elements".to_owned();
    let mask = || Tensor::<bool>::zeros(4);
    let of_layer = |x: &[usize], w: &[usize], bias: usize| {
        message(zeros_of(x).linear(zeros_of(w), zeros_of(&[bias]), Activation::Identity))
    };
    let rank = |a: &str, b: &str| {
        format!("the shapes are {a} and {b}; both need two dimensions or more, see `unsqueeze`")
    };
    let inner = "the shapes are [2, 3] and [2, 2]; the last dimension of the first, 3, must be the last but one of the second, 2".to_owned();
    let of_fft = "the shape is [2, 3]; it must be [.., n, 2], with the real and the imaginary part of each number in the last dimension".to_owned();
    let batches = "the shapes [2] and [3] cannot be broadcast together: from the last dimension on, two sizes must be the same, or one must be 1".to_owned();
    let mistakes = [
        ("item", message(x().item()), "it has 6 elements, not one; use `to_host_vec()`".to_owned()),
        ("memcpy", message(x().memcpy(square())), "a tensor of shape [2, 2] does not fit into one of shape [2, 3]".into()),
        ("memcpy", message(two_rows().memcpy(x())), broadcast.clone()),
        ("map2", message(x().map2(square(), Binary::Max)), together("[2, 2]")),
        ("add", message(x().add(square())), together("[2, 2]")),
        ("sub", message(x().sub(square())), together("[2, 2]")),
        ("mul", message(x().mul(square())), together("[2, 2]")),
        ("div", message(x().div(square())), together("[2, 2]")),
        ("map2_assign", message(x().map2_assign(square(), Binary::Max)), into("[2, 2]")),
        ("add_assign", message(x().add_assign(square())), into("[2, 2]")),
        ("sub_assign", message(x().sub_assign(square())), into("[2, 2]")),
        ("mul_assign", message(x().mul_assign(square())), into("[2, 2]")),
        ("div_assign", message(x().div_assign(square())), into("[2, 2]")),
        ("add_assign", message(two_rows().add_assign(x())), broadcast),
        ("compare", message(x().compare(square(), Comparison::Lt)), together("[2, 2]")),
        ("select", message(mask().select(x(), square())), together("[2, 2]")),
        ("select", message(mask().select(x(), x())), together("[4]").replace("[2, 3] and [4]", "[4] and [2, 3]")),
        ("sum_dim", message(x().sum_dim(2)), none(2)),
        ("mean_dim", message(x().mean_dim(2)), none(2)),
        ("mean_dim", message(Tensor::<f16>::zeros([2, 3]).mean_dim(2)), none(2)),
        ("product_dim", message(x().product_dim(2)), none(2)),
        ("max_dim", message(x().max_dim(2)), none(2)),
        ("max_dim", message(empty().max_dim(0)), no_elements.clone()),
        ("max", message(empty().max()), no_elements.clone()),
        ("min_dim", message(x().min_dim(2)), none(2)),
        ("min_dim", message(empty().min_dim(0)), no_elements.clone()),
        ("min", message(empty().min()), no_elements.clone()),
        ("argmax", message(x().argmax(2)), none(2)),
        ("argmax", message(empty().argmax(0)), no_elements.clone()),
        ("argmin", message(x().argmin(5)), none(5)),
        ("argmin", message(empty().argmin(0)), no_elements),
        ("matmul", message(x().matmul(zeros_of(&[3]))), rank("[2, 3]", "[3]")),
        ("matmul", message(x().matmul(square())), inner.clone()),
        ("matmul", message(zeros_of(&[2, 2, 2]).matmul(zeros_of(&[3, 2, 2]))), batches.clone()),
        ("linear", of_layer(&[3], &[3, 2], 2), rank("[3]", "[3, 2]")),
        ("linear", of_layer(&[2, 3], &[2, 2], 2), inner),
        ("linear", of_layer(&[2, 2, 2], &[3, 2, 2], 2), batches),
        ("linear", of_layer(&[2, 3], &[3, 4], 3), "the bias has the shape [3]; it must have the shape [4], the last dimension of the product".into()),
        ("fft", message(x().fft()), of_fft.clone()),
        ("ifft", message(x().ifft()), of_fft),
        ("softmax", message(x().softmax(2)), none(2)),
        ("reshape", message(x().try_map(|x| x.reshape([4, 2]))), "the shape [2, 3] of 6 elements cannot become [4, 2], which has 8".into()),
        ("reshape", message(x().try_map(|x| x.reshape([1; 9]))), "9 dimensions exceed the limit of 8; merge some of them".into()),
        ("transpose", message(x().try_map(|x| x.transpose(0, 2))), none(2)),
        ("permute", message(x().try_map(|x| x.permute(&[0, 0]))), "[0, 0] is not a permutation of 2 dimensions".into()),
        ("slice", message(x().try_map(|x| x.slice(2, ..))), none(2)),
        ("index", message(x().try_map(|x| x.index(2, 0))), none(2)),
        ("index", message(x().try_map(|x| x.index(0, 2))), "the index 2 is not inside dimension 0, which has size 2".into()),
        ("squeeze", message(x().try_map(|x| x.squeeze(0))), "dimension 0 has size 2; only one of size 1 can be removed".into()),
        ("unsqueeze", message(x().try_map(|x| x.unsqueeze(3))), "a tensor of 2 dimensions takes a new one at 0 to 2, not at 3".into()),
        ("broadcast", message(x().try_map(|x| x.broadcast([2, 4]))), "the shape [2, 3] cannot be broadcast to [2, 4]: from the last dimension on, each size must be 1 or the same".into()),
    ];
    for (operation, message, detail) in mistakes {
        assert_eq!(message, format!("`{operation}` of a tensor: {detail}"));
    }
}

/// An error of an argument names the operation that gave the argument.
#[test]
fn errors_of_arguments_keep_their_operation() {
    let wrong = zeros_of(&[2, 3]).sum_dim(2);
    let error = message(zeros_of(&[2, 3]).add(wrong).softmax(0));
    assert!(error.starts_with("`sum_dim` of a tensor: "), "{error}");
}
