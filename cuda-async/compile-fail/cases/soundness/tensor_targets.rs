//! A tensor is not both the target and an operand of one operation, and only exclusive tensors are targets.

use cuda_tensor::{SharedTensor, Tensor, TensorOps};

use cuda_async::{DeviceOp, graph::DeviceScalar};

fn borrowed(mut x: Tensor<f32>) {
    let _ = (&mut x).add_assign(&x);
}

fn views(mut x: Tensor<f32>) {
    let _ = x.view_mut().memcpy(x.view());
}

fn operand_of_an_operand(mut x: Tensor<f32>) {
    let _ = x.view_mut().add_assign(x.view().mul_scalar(2.0));
}

fn moved(x: Tensor<f32>) {
    let twice = x.view().mul_scalar(2.0);
    let _ = x.memcpy(twice);
}

fn shared(x: SharedTensor<f32>) {
    let _ = x.clone().add_assign(x);
}

fn borrow_of_a_target_that_is_in_use(mut x: Tensor<f32>) {
    let op = (&mut x).add_assign(Tensor::ones(()));
    let _ = x.view();
    let _ = op.map(drop);
}

fn condition_of_floats(go: &DeviceScalar<u32>, x: Tensor<f32>) {
    let _ = go.set_from(x.max());
}

fn main() {}
