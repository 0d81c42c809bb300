use super::*;

fn parse(arguments: &[&str]) -> Result<Invocation, clap::Error> {
    super::parse(arguments.iter().map(OsString::from))
}

fn run_of(arguments: &[&str]) -> Run {
    match parse(arguments) {
        Ok(Invocation::Run(run)) => run,
        other => panic!("{arguments:?} is not run: {other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    command().debug_assert();
}

#[test]
fn without_a_command_and_under_any_other_name_it_is_run() {
    for arguments in [
        &["postrider", "run", "-c", "f"][..],
        &["postrider", "-c", "f"],
        &["/usr/bin/postrider", "--config-path=f"],
        &["envoy", "-c", "f"],
        &["/opt/envoy", "--concurrency", "2", "-c", "f", "--", "validate"],
        &["postrider", "run", "-c", "f", "--ignore_rest", "--no-such-flag"],
    ] {
        assert_eq!(run_of(arguments).flags.config_path.as_deref(), Some(Path::new("f")), "{arguments:?}");
    }
    assert!(matches!(parse(&["postrider", "validate", "f"]), Ok(Invocation::Validate(_))));
    assert_eq!(parse(&["envoy", "validate", "f"]).unwrap_err().exit_code(), 2);
}

#[test]
fn a_misspelt_command_or_flag_gets_a_suggestion() {
    for (arguments, suggestion) in [
        (&["postrider", "validat", "f"][..], "validate"),
        (&["postrider", "run", "--concurency", "1"], "--concurrency"),
    ] {
        let error = parse(arguments).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(suggestion), "{error}");
    }
}

#[test]
fn help_is_no_error_and_names_the_program() {
    let error = parse(&["/bin/envoy", "--help"]).unwrap_err();
    assert_eq!(error.exit_code(), 0);
    assert!(error.to_string().contains("Usage: envoy"), "{error}");
}

#[test]
fn flags_without_effect_are_found_in_both_forms() {
    for arguments in [&["postrider", "run", "--base-id", "3", "-c", "f"][..], &["envoy", "--base-id", "3", "-c", "f"]] {
        assert_eq!(run_of(arguments).without_effect, ["base-id"]);
    }
}

#[test]
fn every_flag_of_every_command_has_a_variable() {
    fn check(command: &Command) {
        for argument in command.get_arguments() {
            let Some(long) = argument.get_long().filter(|long| !matches!(*long, "help" | "version")) else { continue };
            let variable = argument.get_env().and_then(OsStr::to_str).unwrap_or_default();
            assert_eq!(variable, format!("POSTRIDER_{}", long.replace('-', "_").to_uppercase()));
        }
        command.get_subcommands().for_each(check);
    }
    check(&command());
}
