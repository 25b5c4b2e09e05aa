//! Settings: keys of a [`Config`] with the text of their values, from flags, from a file, or from a resumed run.
//!
//! Each value is parsed like the flag of its name, wherever it comes from, so that the same values are valid everywhere.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};

use super::{CHANGEABLE, Config};

/// A key with the text of its value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Setting {
    key: String,
    value: OsString,
    place: Place,
}

/// The origin of a setting.
#[derive(Clone, PartialEq, Debug)]
enum Place {
    Flag,
    /// The file, and its line, counted from 1.
    Line(PathBuf, usize),
    /// A saved run.
    Saved,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { key, place, .. } = self;
        match place {
            Place::Flag => write!(f, "--{key}"),
            Place::Line(path, line) => write!(f, "`{}`, line {line}: `{key}`", path.display()),
            Place::Saved => write!(f, "the run's setting `{key}`"),
        }
    }
}

/// The flags of a [`Config`] that the user gave.
#[derive(Clone, Debug)]
pub(crate) struct Flags(pub(crate) Vec<Setting>);

impl Flags {
    /// The settings of a file, if there is one, then those of the flags, which override them.
    ///
    /// # Errors
    /// If the file cannot be read, or is not one of settings.
    pub(crate) fn settings(&self, file: Option<&Path>) -> Result<Vec<Setting>> {
        let mut settings = file.map_or_else(|| Ok(Vec::new()), Setting::read)?;
        settings.extend(self.0.iter().cloned());
        Ok(settings)
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        Config::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Config::augment_args_for_update(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let mut flags = Vec::new();
        for arg in command().get_arguments() {
            let id = arg.get_id().as_str();
            if matches.value_source(id) == Some(ValueSource::CommandLine) {
                let values = matches.get_raw(id).into_iter().flatten();
                let key = arg.get_long().unwrap_or(id);
                flags.extend(values.map(|value| Setting { key: key.into(), value: value.into(), place: Place::Flag }));
            }
        }
        Ok(Flags(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The parser of a configuration alone; the last of several values of a key counts.
pub(super) fn command() -> Command {
    Config::augment_args(Command::new("remat").no_binary_name(true).args_override_self(true).disable_help_flag(true))
}

impl Setting {
    #[cfg(test)]
    pub(crate) fn flag(key: &str, value: &str) -> Setting {
        Setting { key: key.into(), value: value.into(), place: Place::Flag }
    }

    pub(super) fn of_line(path: PathBuf, line: usize, key: String, value: String) -> Setting {
        Setting { key, value: value.into(), place: Place::Line(path, line) }
    }

    /// Fails unless this is a key with a valid value.
    ///
    /// # Errors
    /// The place, and the mistake there.
    fn check(&self) -> Result<()> {
        let command = command();
        let keys: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        if !keys.contains(&self.key.as_str()) {
            let list = || "; `remat train --print-config` lists the settings".to_string();
            let hint = remat::ir::did_you_mean(&self.key, keys.iter().copied(), list);
            bail!("{self} is not a setting{hint}");
        }
        let value = &self.value;
        ensure!(
            value.to_str().is_some(),
            "{self}: `{}` is not Unicode, and cannot be kept with the run",
            value.display()
        );
        command.try_get_matches_from([self.argument()]).map(drop).map_err(|error| anyhow!("{self}: {}", said(&error)))
    }

    fn argument(&self) -> OsString {
        let mut argument = OsString::from(format!("--{}=", self.key));
        argument.push(&self.value);
        argument
    }
}

/// The message of an invalid value, without the name of a flag and the usage.
fn said(error: &clap::Error) -> String {
    let value = error.get(ContextKind::InvalidValue);
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match (error.kind(), value, cause) {
        (ErrorKind::ValueValidation, Some(value), Some(cause)) => format!("invalid value '{value}': {cause}"),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_string(),
    }
}

impl Config {
    /// The configuration of these settings, of which later ones take precedence, with defaults for the others.
    ///
    /// # Errors
    /// If a key does not exist, or a value is not valid: the place and the reason.
    pub(crate) fn of<'a>(settings: impl IntoIterator<Item = &'a Setting>) -> Result<Config> {
        let mut arguments = Vec::new();
        for setting in settings {
            setting.check()?;
            arguments.push(setting.argument());
        }
        // Each is valid by itself.
        Ok(Config::from_arg_matches(&command().try_get_matches_from(arguments)?)?)
    }

    /// The configuration of a run that is resumed with these settings.
    ///
    /// # Errors
    /// As [`Config::of`]; if a setting would change the run itself.
    pub(crate) fn resumed<'a>(&self, settings: impl IntoIterator<Item = &'a Setting>) -> Result<Config> {
        let mut all = saved_settings(&self.to_settings()?);
        for setting in settings {
            if setting.key == "save" {
                // The file may be that of the run.
                ensure!(setting.place != Place::Flag, "--save: a run that is resumed is saved in its own folder");
                continue;
            }
            if !CHANGEABLE.contains(&setting.key.as_str()) {
                let changed = Config::of(all.iter().chain([setting]))?;
                let own = Config::of(&all)?;
                ensure!(changed == own, "{setting} is not that of the run, and a run that is resumed keeps it");
            }
            all.push(setting.clone());
        }
        Config::of(&all)
    }

    /// The keys and values for a file; keys without a value are omitted.
    ///
    /// # Errors
    /// If a path is not Unicode. Given paths are; that of the text may not be once it is made absolute.
    pub(crate) fn to_settings(&self) -> Result<Map<String, Value>> {
        let mut fields: Map<String, Value> = serde_json::to_value(self)
            .and_then(serde_json::from_value)
            .context("a configuration with a path that is not Unicode cannot be written")?;
        fields.retain(|_, value| !value.is_null());
        Ok(fields)
    }

    /// The configuration of saved settings.
    ///
    /// # Errors
    /// As [`Config::of`].
    pub(crate) fn from_settings(settings: &Map<String, Value>) -> Result<Config> {
        Config::of(&saved_settings(settings))
    }
}

fn saved_settings(settings: &Map<String, Value>) -> Vec<Setting> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    settings
        .iter()
        .map(|(key, value)| Setting { key: key.clone(), value: text(value).into(), place: Place::Saved })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str, value: &str) -> Setting {
        Setting::of_line("run.toml".into(), 3, key.into(), value.into())
    }

    #[test]
    fn a_configuration_is_written_and_read() {
        let set = [setting("layers", "3"), setting("policy", "none"), setting("top-p", "0.5"), setting("text", "a b")];
        let config = Config::of(&set).unwrap();
        assert_eq!((config.sizes.layers, config.policy.as_str(), config.batch), (Some(3), "none", 8));
        assert_eq!(Config::from_settings(&config.to_settings().unwrap()).unwrap(), config);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |key, value| Config::of(&[setting(key, value)]).unwrap_err().to_string();
        assert_eq!(error("layer", "2"), "`run.toml`, line 3: `layer` is not a setting; did you mean `layers`?");
        let list = "`run.toml`, line 3: `x` is not a setting; `remat train --print-config` lists the settings";
        assert_eq!(error("x", "2"), list);
        assert_eq!(error("layers", "0"), "`run.toml`, line 3: `layers`: invalid value '0': 0 is not in 1..=10000");
        assert_eq!(
            error("steps", "a"),
            "`run.toml`, line 3: `steps`: invalid value 'a': invalid digit found in string"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_unicode_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let odd = || OsString::from_vec(b"a\xff".to_vec());
        for key in ["text", "save", "from"] {
            let setting = Setting { key: key.into(), value: odd(), place: Place::Flag };
            let error = Config::of(&[setting]).unwrap_err().to_string();
            assert_eq!(error, format!("--{key}: `a\u{fffd}` is not Unicode, and cannot be kept with the run"));
        }
        let config = Config { text: Some(odd().into()), ..Config::of(&[]).unwrap() };
        let error = config.to_settings().unwrap_err().to_string();
        assert_eq!(error, "a configuration with a path that is not Unicode cannot be written");
        assert!(config.to_toml().is_err());
    }

    #[test]
    fn a_resumed_run_keeps_what_makes_it() {
        let config = Config::of(&[setting("width", "16")]).unwrap();
        let again = config.resumed(&[setting("width", "16"), setting("steps", "7"), setting("save", "x")]).unwrap();
        assert_eq!((again.steps, again.sizes.width), (7, Some(16)));
        let error = config.resumed(&[setting("width", "8")]).unwrap_err().to_string();
        assert_eq!(error, "`run.toml`, line 3: `width` is not that of the run, and a run that is resumed keeps it");
    }
}
