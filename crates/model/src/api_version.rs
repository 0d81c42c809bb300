//! The version of its API that a gRPC service is called with (`transport_api_version`).

/// Whether a service is called as it is meant to be: with V3, which is also what no word and `AUTO` mean
///. V2 is gone.
///
/// # Errors
/// What is wrong with it.
pub fn check_api_version(written: Option<&str>) -> Result<(), String> {
    match written {
        None | Some("AUTO" | "V3") => Ok(()),
        Some(version) => Err(format!("services are called with V3, not with {version}, which is gone")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_means_the_only_version_that_is_left() {
        for version in [None, Some("AUTO"), Some("V3")] {
            assert_eq!(check_api_version(version), Ok(()));
        }
        assert!(check_api_version(Some("V2")).is_err());
    }
}
