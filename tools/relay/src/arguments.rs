//! The command line of `cuda-lease-relay`.

use std::{fmt::Display, net::SocketAddr, str::FromStr, time::Duration};

use relay::RelayOptions;

pub(crate) const USAGE: &str = "usage: cuda-lease-relay SERVER [OPTION VALUE]..
  --listen ADDRESS      listen here; default: a free port of the loopback address
  --seed NUMBER         seed of random decisions
  --delay TIME          delay of each direction, such as 250us, 20ms or 1s
  --jitter TIME         upper limit of an additional random delay
  --loss P              probability of a loss, from 0 to 1
  --duplicate P         probability of a copy
  --reorder P           probability of being overtaken
  --reorder-delay TIME  additional delay of an overtaken datagram; default 1ms
  --rate BYTES          bytes per second of each direction";

/// Parses the arguments after the program's name. The error is a message for the user.
pub(crate) fn parse(
    mut arguments: impl Iterator<Item = String>,
) -> Result<(SocketAddr, RelayOptions), String> {
    let server = parsed("SERVER", &arguments.next().ok_or("SERVER is missing")?)?;
    let mut options = RelayOptions::default();
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
        match name.as_str() {
            "--listen" => options.listen = Some(parsed(&name, &value)?),
            "--seed" => options.seed = parsed(&name, &value)?,
            "--delay" => {
                let delay = time(&name, &value)?;
                options.both(|link| link.delay = delay);
            }
            "--jitter" => {
                let jitter = time(&name, &value)?;
                options.both(|link| link.jitter = jitter);
            }
            "--reorder-delay" => {
                let delay = time(&name, &value)?;
                options.both(|link| link.reorder_delay = delay);
            }
            "--loss" => {
                let loss = probability(&name, &value)?;
                options.both(|link| link.loss = loss);
            }
            "--duplicate" => {
                let duplicate = probability(&name, &value)?;
                options.both(|link| link.duplicate = duplicate);
            }
            "--reorder" => {
                let reorder = probability(&name, &value)?;
                options.both(|link| link.reorder = reorder);
            }
            "--rate" => {
                let rate = parsed(&name, &value)?;
                options.both(|link| link.bytes_per_second = Some(rate));
            }
            _ => return Err(format!("{name} is not an option")),
        }
    }
    Ok((server, options))
}

fn parsed<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("{name} {value}: {error}"))
}

fn probability(name: &str, value: &str) -> Result<f64, String> {
    let probability = parsed(name, value)?;
    match probability {
        0.0..=1.0 => Ok(probability),
        _ => Err(format!("{name} {value}: a probability is from 0 to 1")),
    }
}

fn time(name: &str, value: &str) -> Result<Duration, String> {
    let number = |digits| parsed(name, digits);
    if let Some(digits) = value.strip_suffix("us") {
        Ok(Duration::from_micros(number(digits)?))
    } else if let Some(digits) = value.strip_suffix("ms") {
        Ok(Duration::from_millis(number(digits)?))
    } else if let Some(digits) = value.strip_suffix('s') {
        Ok(Duration::from_secs(number(digits)?))
    } else {
        Err(format!("{name} {value}: write a unit, such as 250us, 20ms or 1s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<(SocketAddr, RelayOptions), String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_apply_to_both_directions() {
        let (server, options) =
            parse_line("127.0.0.1:4433 --delay 250us --jitter 1ms --loss 0.5 --rate 1000").unwrap();
        assert_eq!(server, "127.0.0.1:4433".parse().unwrap());
        assert_eq!(options.to_server, options.to_client);
        assert_eq!(options.to_server.delay, Duration::from_micros(250));
        assert_eq!(options.to_server.jitter, Duration::from_millis(1));
        assert_eq!(options.to_server.loss, 0.5);
        assert_eq!(options.to_server.bytes_per_second, Some(1000));
    }

    #[test]
    fn problems_name_the_argument() {
        let problem = |line| parse_line(line).unwrap_err();
        assert_eq!(problem(""), "SERVER is missing");
        assert!(problem("here").starts_with("SERVER here:"));
        assert_eq!(problem("[::1]:1 --delay"), "--delay has no value");
        assert!(problem("[::1]:1 --delay 5").starts_with("--delay 5: write a unit"));
        assert!(problem("[::1]:1 --loss 2").starts_with("--loss 2: a probability"));
        assert_eq!(problem("[::1]:1 --speed 2"), "--speed is not an option");
    }
}
