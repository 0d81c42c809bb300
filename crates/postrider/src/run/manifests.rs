//! Plugins that the admin interface brings: manifests beside the file, put in force as a reload of the file is.
//!
//! They lie over the file, as changed values of the runtime do: whatever the file says when it is read again, a manifest
//! that came here counts until it is taken back. They end with the process.

use std::sync::Arc;
use std::time::Duration;

use postrider_admin::PluginRefused;
use postrider_filter_plugin::library;
use postrider_model::{Action, ConnectionHandler, FilterOverride, RouteTable, Snapshot, Target};
use postrider_telemetry::access_log::LogWriter;
use postrider_telemetry::info;

use super::reload::{Candidate, Loader, Refused};
use super::state::{Current, State};
use crate::config::Manifests;

/// The most manifests beside the file.
const MAX_MANIFESTS: usize = 1_000;

/// How long code from elsewhere may take, so that whoever asks gets an answer; nothing else is put in force meanwhile.
const CODE_TIMEOUT: Duration = Duration::from_secs(20);

impl Loader<'_> {
    /// Puts a plugin's manifest in force, or takes it back. What is refused changes nothing.
    pub async fn change_plugin(
        &mut self,
        plugin: String,
        manifest: Option<String>,
        state: &Arc<State>,
        logs: &LogWriter,
    ) -> Result<(), PluginRefused> {
        let busy = |words: &str| PluginRefused::Busy(words.to_owned());
        let Some(current) = state.current() else { return Err(busy("there is no configuration yet\n")) };
        let mut manifests = self.manifests.clone();
        let removes = manifest.is_none();
        match manifest {
            Some(text) => {
                manifests.insert(plugin.clone(), text);
            }
            None if manifests.remove(&plugin).is_none() => return Err(self.not_ours(&plugin)),
            None => {}
        }
        if manifests.len() > MAX_MANIFESTS {
            return Err(busy(&format!("there are {MAX_MANIFESTS} plugins already, and no more can be added\n")));
        }
        let candidate = match removes {
            // What a plugin in force has from elsewhere is here, and what was left out stays so.
            true => {
                library().be_lenient(true);
                let candidate = self.check_with(&current, &manifests);
                library().be_lenient(false);
                candidate
            }
            false => {
                // Those of other plugins may not be there to be asked now.
                library().keep_last(true);
                let candidate = self.check_with_code(&current, &manifests).await;
                library().keep_last(false);
                candidate
            }
        };
        let stays = |candidate: &Candidate| candidate.plan.plugins().any(|(_, _, facts)| facts.name == plugin);
        let users = match removes && !candidate.as_ref().is_ok_and(stays) {
            true => users(&current.snapshot, &plugin),
            false => Vec::new(),
        };
        if !users.is_empty() {
            let words = format!("the plugin `{plugin}` is in use by {}\n", users.join(", "));
            self.keep(&current, place(&plugin), vec![words.trim_end().to_owned()], state);
            return Err(PluginRefused::InUse(words));
        }
        let applied = match candidate {
            Ok(candidate) => self.apply(candidate, state, logs).await,
            Err(refused) => Err(refused),
        };
        match applied {
            Ok(()) => {
                let what = if removes { "removed" } else { "put in force" };
                info!(Config, "the manifest of the plugin {plugin} was {what} by the admin interface");
                Ok(())
            }
            Err(refused) => {
                // Nobody waits for its code any more.
                self.code.retain(self.waits);
                let words = refused.text();
                self.keep(&current, place(&plugin), refused.errors(), state);
                Err(PluginRefused::Invalid(words))
            }
        }
    }

    /// Checks a configuration, after the code that its plugins have elsewhere came.
    async fn check_with_code(&mut self, current: &Current, manifests: &Manifests) -> Result<Candidate, Refused> {
        library().begin_round();
        let candidate = self.check_with(current, manifests)?;
        let wanted = library().wanted();
        if wanted.is_empty() {
            return Ok(candidate);
        }
        self.displaced = self.waits;
        self.code.begin(wanted, &candidate.plan);
        if tokio::time::timeout(CODE_TIMEOUT, self.code.arrive()).await.is_err() {
            let seconds = CODE_TIMEOUT.as_secs();
            return Err(Refused::NotApplied(format!("its code did not come within {seconds} s; try again")));
        }
        self.check_with(current, manifests)
    }

    /// Why there is nothing to take back.
    fn not_ours(&self, plugin: &str) -> PluginRefused {
        let known = self.plan.as_ref().is_some_and(|plan| plan.plugins().any(|(_, _, facts)| facts.name == plugin));
        match known {
            true => PluginRefused::InUse(format!(
                "the plugin `{plugin}` stands in {}: remove it there\n",
                self.options.input.name()
            )),
            false => PluginRefused::Unknown(format!("there is no plugin `{plugin}`\n")),
        }
    }
}

/// As diagnostics and the history name a manifest.
fn place(plugin: &str) -> String {
    format!("/plugins/{plugin}")
}

/// What names the plugin: route tables, virtual hosts, routes.
fn users(snapshot: &Snapshot, plugin: &str) -> Vec<String> {
    let chains = snapshot.listeners.iter().flat_map(|l| l.filter_chains.iter().chain(&l.default_filter_chain));
    let tables = chains.filter_map(|chain| match &chain.handler {
        ConnectionHandler::Http(http) => Some(&http.routes),
        _ => None,
    });
    let mut users: Vec<String> = Vec::new();
    for table in tables {
        for user in users_of(table, plugin) {
            if !users.contains(&user) {
                users.push(user);
            }
        }
    }
    users
}

fn users_of(table: &RouteTable, plugin: &str) -> Vec<String> {
    let names = |overrides: &[FilterOverride]| overrides.iter().any(|change| change.name == plugin);
    let mut users = Vec::new();
    if names(&table.filter_overrides) {
        users.push(format!("the route table {}", table.name));
    }
    // As statistics number them: over all virtual hosts.
    let mut numbers = 0_usize..;
    for host in &table.virtual_hosts {
        if names(&host.filter_overrides) {
            users.push(format!("the virtual host {}", host.name));
        }
        for (route, number) in host.routes.iter().zip(&mut numbers) {
            let of_clusters = match &route.action {
                Action::Forward(forward) => match &forward.target {
                    Target::Weighted(clusters) => clusters.iter().any(|cluster| names(&cluster.filter_overrides)),
                    _ => false,
                },
                _ => false,
            };
            if names(&route.filter_overrides) || of_clusters {
                let name = match route.name.as_str() {
                    "" => format!("{}.{number}", host.name),
                    name => name.to_owned(),
                };
                users.push(format!("the route {name}"));
            }
        }
    }
    users
}
