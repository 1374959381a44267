//! How long the completion thread spins, sleeps and waits before it asks: knows no CUDA and no clock.

use std::time::Duration;

/// How often a stream is asked for its status while notices are outstanding and none comes. After a fault the
/// device's answer takes about three times as long to turn into an error.
pub(super) const WATCH: Duration = Duration::from_millis(50);

/// The shortest sleep; waking up costs about as much.
const NAP: Duration = Duration::from_micros(5);

/// A sleep is at most this part of the time that was waited already: what takes long may be told a little later.
const PART: u32 = 32;

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Looks again at once.
    Spin,
    /// Looks again after this time, or when it is woken.
    Sleep(Duration),
    /// Asks a stream for its status, then looks again.
    Ask,
    /// Sleeps until it is woken.
    Park,
}

/// How the thread learns that words change.
#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    /// By looking: spins for this long after anything happened, then sleeps between looks.
    Looks(Duration),
    /// By being woken.
    Woken,
}

/// What to do now. `idle`: nobody waits. `calm`: since a word changed or somebody new came to wait. `unasked`: since
/// a word changed, a stream was asked, or the first of those who wait came.
pub(super) fn pause(style: Style, idle: bool, calm: Duration, unasked: Duration) -> Pause {
    let spin = match style {
        Style::Looks(spin) => spin,
        Style::Woken => Duration::ZERO,
    };
    match (idle, calm < spin) {
        (_, true) if unasked < WATCH || idle => Pause::Spin,
        (true, _) => Pause::Park,
        (false, _) if unasked >= WATCH => Pause::Ask,
        _ => {
            let rest = WATCH - unasked;
            match style {
                Style::Looks(_) => Pause::Sleep((calm / PART).max(NAP).min(rest)),
                Style::Woken => Pause::Sleep(rest),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Style = Style::Looks(Duration::from_micros(200));

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn spins_first_then_sleeps_a_part_of_the_wait() {
        assert_eq!(pause(SPIN, false, us(199), us(199)), Pause::Spin);
        assert_eq!(pause(Style::Looks(us(20)), false, us(100), us(100)), Pause::Sleep(NAP));
        assert_eq!(pause(SPIN, false, us(6400), us(6400)), Pause::Sleep(us(200)));
    }

    #[test]
    fn asks_when_nothing_has_happened_for_a_while() {
        assert_eq!(pause(SPIN, false, us(50_000), us(50_000)), Pause::Ask);
        assert_eq!(pause(Style::Woken, false, us(1), us(50_000)), Pause::Ask);
        // Newcomers do not put it off.
        assert_eq!(pause(SPIN, false, us(1), us(50_000)), Pause::Ask);
        assert_eq!(pause(SPIN, false, us(49_990), us(49_990)), Pause::Sleep(us(10)));
    }

    #[test]
    fn parks_soon_when_nobody_waits() {
        assert_eq!(pause(SPIN, true, us(10), us(90_000)), Pause::Spin);
        assert_eq!(pause(SPIN, true, us(200), us(200)), Pause::Park);
        assert_eq!(pause(Style::Woken, true, us(0), us(0)), Pause::Park);
    }

    #[test]
    fn sleeps_until_it_is_woken_where_somebody_wakes_it() {
        assert_eq!(pause(Style::Woken, false, us(0), us(20_000)), Pause::Sleep(us(30_000)));
    }
}
