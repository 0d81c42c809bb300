//! One certificate: an order, proofs that the names are ours, and what the authority signs in the end.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use postrider_model::{Acme, AcmeChallenge};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::challenge::Challenges;
use crate::client::Client;
use crate::issuer::Changed;
use crate::stand_in::{pem, proof};
use crate::store::Store;

/// How long the authority may take to look at the proofs, and then to sign.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

/// An account that the authority does not know (any more).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Ways to show that a name is ours.
pub(crate) struct Proofs<'a> {
    pub(crate) kind: AcmeChallenge,
    pub(crate) challenges: &'a Challenges,
    pub(crate) store: &'a Store,
    pub(crate) changed: &'a Changed,
}

/// The account that is stored, or a new one.
///
/// # Errors
/// As a sentence for the log.
pub(crate) async fn account(settings: &Acme, store: &Store, client: &Client) -> Result<Account, String> {
    let builder = Account::builder_with_http(Box::new(client.clone()));
    if let Some(stored) = store.account().map_err(|error| format!("the stored account cannot be read: {error}"))? {
        return builder.from_credentials(stored).await.map_err(|error| shown(&error));
    }
    let contacts: Vec<&str> = settings.contacts.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contacts, terms_of_service_agreed: true, only_return_existing: false };
    let created = builder.create(&new, settings.directory.clone(), None).await;
    let (account, credentials) = created.map_err(|error| shown(&error))?;
    store.put_account(&credentials).map_err(|error| format!("the account cannot be stored: {error}"))?;
    Ok(account)
}

/// Gets a certificate; answers its key and chain in PEM.
///
/// # Errors
/// As a sentence for the log.
pub(crate) async fn obtain(account: &Account, names: &[String], proofs: &Proofs<'_>) -> Result<Vec<u8>, String> {
    let identifiers: Vec<Identifier> = names.iter().cloned().map(Identifier::Dns).collect();
    let ordered = account.new_order(&NewOrder::new(&identifiers)).await;
    let mut order = ordered.map_err(|error| {
        if matches!(&error, Error::Api(problem) if problem.r#type.as_deref() == Some(NO_ACCOUNT)) {
            proofs.store.forget_account();
        }
        shown(&error)
    })?;
    prove(&mut order, proofs).await?;
    let key = KeyPair::generate().map_err(|error| format!("no key can be made: {error}"))?;
    let mut wanted = CertificateParams::new(names).map_err(|error| error.to_string())?;
    // Authorities take the names from the list of names; a subject of ours would be in their way.
    wanted.distinguished_name = DistinguishedName::new();
    let request = wanted.serialize_request(&key).map_err(|error| error.to_string())?;
    order.finalize_csr(request.der()).await.map_err(|error| shown(&error))?;
    let chain = order.poll_certificate(&PATIENCE).await.map_err(|error| shown(&error))?;
    let issued = postrider_tls::first_certificate(chain.as_bytes());
    let issued = issued.ok_or("the authority answered with something that is no certificate")?;
    if let Some(missing) = names.iter().find(|name| !issued.names.dns.contains(name)) {
        return Err(format!("the authority's certificate is not good for {missing}"));
    }
    Ok((pem("PRIVATE KEY", &key.serialize_der()) + &chain).into_bytes())
}

/// Shows the authority that every name leads here.
async fn prove(order: &mut Order, proofs: &Proofs<'_>) -> Result<(), String> {
    let mut offers = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(|error| shown(&error))?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => return Err(format!("{}: the authorization is {other:?}", authorization.identifier())),
        }
        let name = authorization.identifier().to_string();
        let (kind, shown_as) = match proofs.kind {
            AcmeChallenge::Http01 => (ChallengeType::Http01, "http-01"),
            AcmeChallenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "tls-alpn-01"),
        };
        let challenge = authorization.challenge(kind);
        let mut challenge = challenge.ok_or_else(|| format!("{name}: the authority offers no {shown_as} challenge"))?;
        let answer = challenge.key_authorization();
        match proofs.kind {
            AcmeChallenge::Http01 => offers.push(proofs.challenges.offer(&challenge.token, answer.as_str())),
            AcmeChallenge::TlsAlpn01 => {
                let pem = proof(&name, answer.digest().as_ref()).map_err(|error| error.to_string())?;
                let stored = proofs.store.put_challenge(&name, &pem);
                stored.map_err(|error| format!("the proof for {name} cannot be stored: {error}"))?;
                proofs.changed.tell().await;
            }
        }
        challenge.set_ready().await.map_err(|error| shown(&error))?;
    }
    match order.poll_ready(&PATIENCE).await {
        Ok(OrderStatus::Ready | OrderStatus::Valid) => Ok(()),
        Ok(_) => Err(refusal(order).await),
        Err(error) => Err(shown(&error)),
    }
}

/// Why the authority did not believe us.
async fn refusal(order: &mut Order) -> String {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        // What was read before the proof does not tell how it went.
        let Ok(state) = authorization.refresh().await else { continue };
        let problems = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        reasons.extend(problems.map(|problem| format!("{name}: {problem}")));
    }
    if reasons.is_empty() { "the authority refused the order without a reason".to_owned() } else { reasons.join("; ") }
}

fn shown(error: &Error) -> String {
    match error {
        Error::Other(cause) => cause.to_string(),
        error => error.to_string(),
    }
}
