//! `weir release`: lets go removals that the brakes of a running relay hold.

use std::process::ExitCode;

use clap::{ArgGroup, Args};
use http::StatusCode;

use super::admin::{AdminArgs, AdminError};
use super::output::{OutputArgs, finish};
use super::view_words::ViewWords;
use super::{CANNOT_ASK, FOUND, brakes, error, show};

/// Lets go removals that brakes hold, as a running relay shows them at /brakes
///
/// A relay takes changes over its admin socket, or with a certificate that admin.tls.may_change lists. The generation is that of
/// /brakes: what was held later stays held. Without options it shows what is held, as weir brakes does. Exit code: 0 if anything was
/// released, 1 if the relay released nothing, 2 if it cannot be reached.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("of").requires("generation")))]
pub struct Release {
    /// Release nothing that was held after this one
    #[arg(long, value_name = "NUMBER", requires = "of")]
    generation: Option<u64>,
    /// Release what is held in this view, by its words or its hash, as weir brakes shows them
    #[arg(long, group = "of")]
    view: Option<String>,
    /// Release what this server has removed in all views, named as at /brakes
    #[arg(long, group = "of")]
    server: Option<String>,
    /// Only of this type, such as clusters
    #[arg(long = "type", value_name = "TYPE", requires = "of")]
    kind: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Release {
    /// Sends the release and prints the result.
    pub async fn run(self) -> ExitCode {
        let Some(generation) = self.generation else {
            return finish(brakes::answer(&self.relay, &self.output).await);
        };
        let result = match self.send(generation).await {
            Ok(released) => show(&released).map_err(|error| (format!("cannot write: {error}"), CANNOT_ASK)),
            Err(AdminError::Refused { status: StatusCode::NOT_FOUND | StatusCode::CONFLICT, reason }) => {
                Err((reason, FOUND))
            }
            Err(error) => Err((error.to_string(), CANNOT_ASK)),
        };
        let Err((reason, code)) = result else { return ExitCode::SUCCESS };
        error(&reason);
        ExitCode::from(code)
    }

    async fn send(&self, generation: u64) -> Result<String, AdminError> {
        let generation = generation.to_string();
        let words = if self.view.is_some() { ViewWords::ask(&self.relay).await? } else { ViewWords::default() };
        let view = self.view.as_deref().map(|view| words.meant(view));
        let given = [("view", view), ("server", self.server.as_deref()), ("type", self.kind.as_deref())];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let parameters: Vec<_> = [("generation", &*generation)].into_iter().chain(given).collect();
        self.relay.post("/brakes/release", &parameters).await
    }
}
