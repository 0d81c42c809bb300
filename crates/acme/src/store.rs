//! The state directory: accounts and certificates, each a file that is replaced as a whole and read by its owner alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use postrider_model::Acme;
use postrider_tls::CertificateFacts;
use sha2::{Digest, Sha256};

/// Bytes of the digest that tells accounts of different authorities apart.
const DIGEST_BYTES: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Store {
    settings: Acme,
}

impl Store {
    /// Makes the directories that are missing.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(settings: &Acme) -> io::Result<Store> {
        for folder in ["certificates", "challenges"] {
            DirBuilder::new().recursive(true).mode(0o700).create(settings.state.join(folder))?;
        }
        Ok(Store { settings: settings.clone() })
    }

    /// What is known of the certificate that is stored; `None` when there is none that can be read.
    pub(crate) fn certificate(&self, names: &[String]) -> Option<CertificateFacts> {
        let pem = fs::read(self.file(names)?).ok()?;
        postrider_tls::first_certificate(&pem)
    }

    /// # Errors
    /// The system's; then what was there before is there still.
    pub(crate) fn put_certificate(&self, names: &[String], pem: &[u8]) -> io::Result<()> {
        let file = self.file(names).ok_or(io::ErrorKind::InvalidInput)?;
        replace(&file, pem)
    }

    /// # Errors
    /// The system's.
    pub(crate) fn put_challenge(&self, name: &str, pem: &[u8]) -> io::Result<()> {
        replace(&self.settings.challenge_file(name), pem)
    }

    fn file(&self, names: &[String]) -> Option<PathBuf> {
        names.first().map(|name| self.settings.certificate_file(name))
    }

    /// The account with this directory; `None` when there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub(crate) fn account(&self) -> io::Result<Option<AccountCredentials>> {
        match fs::read(self.account_file()) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// # Errors
    /// The system's.
    pub(crate) fn put_account(&self, account: &AccountCredentials) -> io::Result<()> {
        replace(&self.account_file(), &serde_json::to_vec(account)?)
    }

    /// An authority that does not know the account any more gets a new one.
    pub(crate) fn forget_account(&self) {
        // One that stays is tried again, and forgotten again.
        let _ = fs::remove_file(self.account_file());
    }

    fn account_file(&self) -> PathBuf {
        let digest = Sha256::digest(self.settings.directory.as_bytes());
        let text: String = digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
        self.settings.state.join(format!("account-{text}.json"))
    }
}

/// Writes a file beside the place and renames it, so that nobody ever reads half of it.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("draft");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    // The new name lasts when the directory is written, too.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    pub(crate) fn settings(name: &str) -> Acme {
        let state = std::env::temp_dir().join(format!("postrider-acme-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&state);
        Acme {
            directory: "https://authority.test/dir".to_owned(),
            directory_ca: None,
            contacts: Vec::new(),
            state,
            retry: Duration::from_secs(60),
            certificates: vec![vec!["a.test".to_owned(), "b.test".to_owned()]],
            challenge: postrider_model::AcmeChallenge::Http01,
        }
    }

    #[test]
    fn what_is_stored_is_replaced_whole_and_for_its_owner_alone() {
        let settings = settings("store");
        let store = Store::open(&settings).unwrap();
        let names = &settings.certificates[0];
        assert_eq!(store.certificate(names), None);
        fs::write(settings.certificate_file("a.test").with_extension("draft"), "left by a crash").unwrap();
        store.put_certificate(names, &crate::stand_in::self_signed(names).unwrap()).unwrap();
        store.put_certificate(names, &crate::stand_in::self_signed(names).unwrap()).unwrap();
        let facts = store.certificate(names).unwrap();
        assert_eq!(facts.names.dns, *names);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&settings.certificate_file("a.test")), 0o600);
        assert_eq!((mode(&settings.state), mode(&settings.state.join("certificates"))), (0o700, 0o700));
        assert_eq!(fs::read_dir(settings.state.join("certificates")).unwrap().count(), 1);
        assert!(store.account().unwrap().is_none());
        fs::write(store.account_file(), "{").unwrap();
        assert!(store.account().is_err());
        fs::remove_dir_all(&settings.state).unwrap();
    }
}
