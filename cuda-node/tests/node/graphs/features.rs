//! The features that a node states.

use cuda_lease::wire::{Hello, VERSION, Welcome, features};

use crate::{
    harness::{Node, device},
    raw::{RawClient, block_on},
};

#[test]
fn node_states_the_features_that_the_client_has_too() {
    let node = Node::start(&[]);
    block_on(async {
        for (stated, confirmed) in
            [(0, 0), (features::LOOPS, features::LOOPS), (u64::MAX, features::ALL)]
        {
            let mut client = RawClient::connect_silently(&node.address).await;
            let hello = Hello {
                oldest: VERSION,
                newest: VERSION,
                features: stated,
                program: "test".into(),
            };
            client.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
            let (_, reply) = client.control.reply().await.unwrap();
            assert_eq!(Welcome::decode(&reply).unwrap().features, confirmed);
            // The CPU device has all of them that devices can have. A GPU cancels nothing that it has received.
            let of_cpu = features::ALL & !features::CONFIRM;
            let of_device = if device() == "cpu" { of_cpu } else { of_cpu & !features::CANCEL };
            assert_eq!(client.allocate().await.features, Some(of_device));
        }
    });
}
