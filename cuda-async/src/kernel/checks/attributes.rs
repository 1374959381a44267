//! The attributes of a launch that a declaration adds or removes.

use cuda_core::LaunchConfig;

/// Adds the attribute of [`LaunchConfig::cooperative`].
#[inline(always)]
pub fn cooperative(config: Option<LaunchConfig>) -> Option<LaunchConfig> {
    config.map(LaunchConfig::cooperative)
}

/// Adds the attribute of [`LaunchConfig::dependent`].
#[inline(always)]
pub fn dependent(config: Option<LaunchConfig>) -> Option<LaunchConfig> {
    config.map(LaunchConfig::dependent)
}

/// Removes the attribute of [`LaunchConfig::dependent`], for launchers that are safe and get a configuration.
#[inline(always)]
pub fn not_dependent(mut config: LaunchConfig) -> LaunchConfig {
    config.attributes = config.attributes.without_dependent();
    config
}
