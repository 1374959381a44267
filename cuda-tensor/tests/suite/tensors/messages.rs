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
    assert!(
        matches!(error, Error::OutOfRange { .. } | Error::Shape { .. } | Error::Misuse(_)),
        "{error:?}"
    );
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
            "of a tensor of shape [2, 3]: the dimension is {dim} and must be less than 2; count dimensions from 0"
        )
    };
    let together = |shape: &str, other: &str| {
        format!(
            "of a tensor: the shape {shape} cannot be broadcast together with {other}: from the last dimension on, two sizes must be the same, or one must be 1"
        )
    };
    let into = |other: &str| {
        format!(
            "of a tensor: the shape {other} cannot be broadcast to [2, 3]: from the last dimension on, each size must be 1 or the same"
        )
    };
    let broadcast = "of a tensor: the memory is broadcast: several of its elements are the same memory; copy it first, with `dup()` or in its own framework".to_owned();
    let no_elements =
        "of a tensor: the size of the dimension is 0 and must be at least 1; use another dimension or another shape".to_owned();
    let mask = || Tensor::<bool>::zeros(4);
    let of_layer = |x: &[usize], w: &[usize], bias: usize| {
        message(zeros_of(x).linear(zeros_of(w), zeros_of(&[bias]), Activation::Identity))
    };
    let product = |a: &str, b: &str| {
        format!(
            "of a tensor: the shape {a} cannot be multiplied by {b}: the shapes must be [.., m, k] and [.., k, n], and the other dimensions must broadcast; see `unsqueeze` and `transpose`"
        )
    };
    let of_fft = "of a tensor: the shape [2, 3] must be [.., n, 2], with the real and the imaginary part of each number in the last dimension".to_owned();
    let mistakes = [
        ("item", message(x().item()), "of a tensor: the shape [2, 3] must have one element; reduce it first, for example with `max()`, or use `to_host_vec()`".to_owned()),
        ("memcpy", message(x().memcpy(square())), "of a tensor: the shape [2, 2] must be [2, 3]".into()),
        ("memcpy", message(two_rows().memcpy(x())), broadcast.clone()),
        ("map2", message(x().map2(square(), Binary::Max)), together("[2, 3]", "[2, 2]")),
        ("add", message(x().add(square())), together("[2, 3]", "[2, 2]")),
        ("sub", message(x().sub(square())), together("[2, 3]", "[2, 2]")),
        ("mul", message(x().mul(square())), together("[2, 3]", "[2, 2]")),
        ("div", message(x().div(square())), together("[2, 3]", "[2, 2]")),
        ("map2_assign", message(x().map2_assign(square(), Binary::Max)), into("[2, 2]")),
        ("add_assign", message(x().add_assign(square())), into("[2, 2]")),
        ("sub_assign", message(x().sub_assign(square())), into("[2, 2]")),
        ("mul_assign", message(x().mul_assign(square())), into("[2, 2]")),
        ("div_assign", message(x().div_assign(square())), into("[2, 2]")),
        ("add_assign", message(two_rows().add_assign(x())), broadcast),
        ("compare", message(x().compare(square(), Comparison::Lt)), together("[2, 3]", "[2, 2]")),
        ("select", message(mask().select(x(), square())), together("[2, 3]", "[2, 2]")),
        ("select", message(mask().select(x(), x())), together("[4]", "[2, 3]")),
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
        ("matmul", message(x().matmul(zeros_of(&[3]))), product("[2, 3]", "[3]")),
        ("matmul", message(x().matmul(square())), product("[2, 3]", "[2, 2]")),
        ("matmul", message(zeros_of(&[2, 2, 2]).matmul(zeros_of(&[3, 2, 2]))), product("[2, 2, 2]", "[3, 2, 2]")),
        ("linear", of_layer(&[3], &[3, 2], 2), product("[3]", "[3, 2]")),
        ("linear", of_layer(&[2, 3], &[2, 2], 2), product("[2, 3]", "[2, 2]")),
        ("linear", of_layer(&[2, 2, 2], &[3, 2, 2], 2), product("[2, 2, 2]", "[3, 2, 2]")),
        ("fft", message(x().fft()), of_fft.clone()),
        ("ifft", message(x().ifft()), of_fft),
        ("softmax", message(x().softmax(2)), none(2)),
        ("reshape", message(x().try_map(|x| x.reshape([4, 2]))), "of a tensor: the shape [2, 3] cannot become [4, 2], which has another number of elements".into()),
        ("reshape", message(x().try_map(|x| x.reshape([1; 9]))), "of a tensor: the number of dimensions is 9 and must be at most 8; merge some of them".into()),
        ("transpose", message(x().try_map(|x| x.transpose(0, 2))), none(2)),
        ("permute", message(x().try_map(|x| x.permute(&[0, 0]))), "of a tensor: the shape [2, 3] cannot have the order [0, 0], which must name each dimension once".into()),
        ("slice", message(x().try_map(|x| x.slice(2, ..))), none(2)),
        ("index", message(x().try_map(|x| x.index(2, 0))), none(2)),
        ("index", message(x().try_map(|x| x.index(0, 2))), "of a tensor of shape [2, 3]: the index is 2 and must be less than 2; count from 0".into()),
        ("squeeze", message(x().try_map(|x| x.squeeze(0))), "of a tensor of shape [2, 3]: the size of the dimension is 2 and must be 1; use another dimension or another shape".into()),
        ("unsqueeze", message(x().try_map(|x| x.unsqueeze(3))), "of a tensor of shape [2, 3]: the dimension is 3 and must be at most 2; count dimensions from 0".into()),
        ("broadcast", message(x().try_map(|x| x.broadcast([2, 4]))), "of a tensor: the shape [2, 3] cannot be broadcast to [2, 4]: from the last dimension on, each size must be 1 or the same".into()),
    ];
    for (operation, message, detail) in mistakes {
        assert_eq!(message, format!("`{operation}` {detail}"));
    }
    assert_eq!(of_layer(&[2, 3], &[3, 4], 3), "the bias of `linear`: the shape [3] must be [4]");
}

/// An error of an argument names the operation that gave the argument.
#[test]
fn errors_of_arguments_keep_their_operation() {
    let wrong = zeros_of(&[2, 3]).sum_dim(2);
    let error = message(zeros_of(&[2, 3]).add(wrong).softmax(0));
    assert!(error.starts_with("`sum_dim` of a tensor of shape [2, 3]: "), "{error}");
}
