//! The network computes the same bits on every device, and they are the expected ones of `train.py`.

use std::{error::Error, sync::Arc};

use cuda_async::{Device, DeviceOp, h2d, to_host, zip};
use examples::digits::{CLASSES, Digits, Model, Readings, Weights, draw};
use ndarray::Array2;
use ndarray_npy::ReadNpyExt;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Opens the first GPU. Prints a message if there is none.
fn cuda() -> Option<Device> {
    cuda_async::open_blocking("cuda")
        .inspect_err(|error| println!("not run on a GPU here: {error}"))
        .ok()
}

/// Returns the logits, labels and probabilities of all images in `digits`.
fn read(device: &Device, digits: &Digits) -> Result<(Vec<f32>, Vec<u32>, Vec<f32>)> {
    let stream = device.new_stream()?;
    let model = Model::upload(device, &Weights::load()?)?.sync_on(&stream)?;
    let pixels = digits.batches(digits.len()).next().unwrap_or_default();
    let op = h2d(pixels).then(|pixels| model.logits(pixels)).map(Arc::new).then(|logits| {
        zip!(
            to_host(logits.clone()),
            model.labels(logits.clone()).then(to_host),
            model.probabilities(logits).then(to_host)
        )
    });
    Ok(op.sync_on(&stream)?)
}

fn expected_logits() -> Result<Vec<f32>> {
    let npy = &include_bytes!("../digits/expected/logits.npy")[..];
    Ok(Array2::<f32>::read_npy(npy)?.iter().copied().collect())
}

fn logits_match_bit_for_bit(device: &Device) -> Result {
    let (logits, labels, probabilities) = read(device, &Digits::load()?.held_out())?;
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&logits), bits(&expected_logits()?));

    for ((logits, label), probabilities) in
        logits.chunks(CLASSES).zip(labels).zip(probabilities.chunks(CLASSES))
    {
        assert!(logits.iter().all(|logit| *logit <= logits[label as usize]));
        assert!(probabilities.iter().all(|p| *p <= probabilities[label as usize]));
        assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    }
    Ok(())
}

fn reads_nearly_all(device: &Device) -> Result {
    let digits = Digits::load()?;
    let (_, labels, probabilities) = read(device, &digits)?;
    let mut readings = Readings::default();
    readings.push(&labels, &probabilities);
    let score = readings.held_out_score(&digits);
    assert_eq!(score.of, 360);
    assert!(score.accuracy() >= 0.95, "{}", score.accuracy());
    // The checksum that every device prints. It changes only with the network or the data.
    assert_eq!(readings.checksum(), 0x0812_f089_79ac_be79);
    Ok(())
}

#[test]
fn logits_on_cpu() -> Result {
    logits_match_bit_for_bit(&cuda_async::open_blocking("cpu")?)
}

#[test]
fn logits_on_cuda() -> Result {
    cuda().iter().try_for_each(logits_match_bit_for_bit)
}

#[test]
fn accuracy_on_cpu() -> Result {
    reads_nearly_all(&cuda_async::open_blocking("cpu")?)
}

#[test]
fn accuracy_on_cuda() -> Result {
    cuda().iter().try_for_each(reads_nearly_all)
}

#[test]
fn the_data_set_is_whole() -> Result {
    let digits = Digits::load()?;
    assert_eq!((digits.len(), digits.held_out().len()), (1797, 360));
    assert!(digits.image(1797).is_empty());
    assert_eq!(
        digits.batches(500).map(<[u8]>::len).collect::<Vec<_>>(),
        [32_000, 32_000, 32_000, 19_008]
    );
    Ok(())
}

#[test]
fn draws_whatever_was_read() -> Result {
    let folder = std::env::temp_dir().join(format!("digits-{}", std::process::id()));
    let path = folder.join("new folder/digits.png");
    let digits = Digits::load()?;
    let mut readings = Readings::default();
    // All predictions are 10, which is not a digit, so there are more wrong ones than cells in the picture.
    readings.push(&vec![10; digits.len()], &vec![0.1; digits.len() * CLASSES]);
    draw(&path, &digits, &readings, "test")?;
    draw(&path, &digits, &Readings::default(), "test")?;
    assert!(std::fs::read(&path)?.starts_with(b"\x89PNG"));
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
