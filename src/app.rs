//! Assembly: build everything, bind everything, run.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::admin;
use crate::config::Config;
use crate::downstream::Downstream;
use crate::relay::Views;
use crate::upstream::AdsConnector;

/// A relay that is bound and not yet running.
pub struct App {
    listeners: Vec<TcpListener>,
    admin: Option<TcpListener>,
    downstream: Downstream,
    views: Arc<Views>,
}

impl App {
    pub async fn bind(config: Config) -> anyhow::Result<Self> {
        let connector = AdsConnector::new(config.server).context("upstream.servers[0].uri")?;
        let views = Arc::new(Views::new(config.key, config.limits, config.most_views, Arc::new(connector)));
        let mut listeners = Vec::new();
        for address in config.listen {
            listeners.push(bind(address).await?);
        }
        let admin = match config.admin {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let downstream = Downstream::new(views.clone(), config.downstream);
        Ok(Self { listeners, admin, downstream, views })
    }

    /// Where clients connect, with the ports that port 0 became.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    /// Serves until the future is dropped.
    pub async fn run(self) {
        let mut tasks = JoinSet::new();
        for listener in self.listeners {
            tasks.spawn(self.downstream.clone().serve(listener));
        }
        if let Some(listener) = self.admin {
            tasks.spawn(admin::serve(listener, self.views));
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}
