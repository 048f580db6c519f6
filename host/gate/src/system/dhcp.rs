//! The connections of a run to DHCP services.
//!
//! A confined process can't open connections. So a run opens its connections before its confinement. An ADD opens two
//! connections to each service: one to ask, and one to give back the lease if the ADD fails. The first connection may
//! then still wait for an answer.

use crate::deadline::Deadline;
use crate::request::Request;
use postern_cni::Verb;
use postern_dhcp_channel::{Answer, Ask, Attachment, Channel, SWITCH, ServiceError, families};
use postern_kernel::Namespace;
use postern_types::{ErrorCode, OpError};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time to wait for a connection, and for an answer that needs no DHCP server.
const SOON: Duration = Duration::from_secs(10);

/// The least wait after which a missing answer shows a fault. After a shorter wait, the run only had no time left.
const A_WHILE: Duration = Duration::from_secs(1);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhcpUse {
    /// All requests of a plugin.
    Plugin,
    /// The return of leases.
    Release,
}

/// The reason why a service was not asked, or did not answer.
#[derive(Clone, Debug)]
struct Unanswered {
    /// True if the service is absent: no request was sent, or the connection broke.
    is_absent: bool,
    /// True if this request reached the service, and no answer came in time.
    is_late: bool,
    error: OpError,
}

struct Connection {
    socket: String,
    of: DhcpUse,
    channel: Result<Channel, Unanswered>,
}

/// The connections of one run to DHCP services.
#[derive(Default)]
pub struct DhcpConnections {
    open: RefCell<Vec<Connection>>,
    /// The container's namespace, which the service gets with a request.
    namespace: RefCell<Option<OwnedFd>>,
    /// True if no further connection can be opened.
    is_sealed: Cell<bool>,
    /// Services that have already given this attachment's lease back in this run. They are not asked again.
    released: RefCell<Vec<String>>,
}

impl DhcpConnections {
    /// Keeps a descriptor of the container's namespace.
    pub fn keep(&self, namespace: &Namespace) -> std::io::Result<()> {
        *self.namespace.borrow_mut() = Some(namespace.fd().try_clone_to_owned()?);
        Ok(())
    }

    fn connect(&self, socket: &str, of: DhcpUse, deadline: Instant) {
        // Half of the time is left to the run, for its error and its undo.
        let began = Instant::now();
        let deadline = began + SOON.min(deadline.saturating_duration_since(began) / 2);
        let channel = Channel::connect(Path::new(socket), deadline).map_err(|error| Unanswered {
            // A service counts as absent if no request was sent: a DEL then has nothing to wait for. After a temporary
            // failure the service may have the lease, and the next run asks the service.
            is_absent: !matches!(error, ServiceError::Deadline | ServiceError::NotNow(_)),
            is_late: false,
            error: match error {
                ServiceError::Deadline if began.elapsed() >= A_WHILE => stuck(socket),
                _ => unanswered(socket, &error).error,
            },
        });
        self.keep_connection(socket, of, channel);
    }

    fn keep_connection(&self, socket: &str, of: DhcpUse, channel: Result<Channel, Unanswered>) {
        self.open.borrow_mut().push(Connection { socket: socket.to_owned(), of, channel });
    }

    /// Returns the error of the service at a socket that took no connection in time.
    fn why_stuck(&self, socket: &str) -> Option<Unanswered> {
        let open = self.open.borrow();
        let failed = open.iter().filter(|open| open.socket == socket).find_map(|open| open.channel.as_ref().err());
        failed.filter(|failed| failed.error.code == ErrorCode::Deadline && !failed.is_late).cloned()
    }

    fn has(&self, socket: &str, of: DhcpUse) -> bool {
        self.open.borrow().iter().any(|open| open.socket == socket && open.of == of)
    }

    /// Asks the service at a socket.
    fn ask(&self, socket: &str, of: DhcpUse, ask: &Ask, deadline: Instant) -> Result<Answer, Unanswered> {
        // The connection for the plugin serves the release too, if the run has no second connection.
        let of = if of == DhcpUse::Release && !self.has(socket, of) && self.has(socket, DhcpUse::Plugin) {
            DhcpUse::Plugin
        } else {
            of
        };
        if !self.has(socket, of) && !self.is_sealed.get() {
            self.connect(socket, of, deadline);
        }
        let mut open = self.open.borrow_mut();
        let Some(connection) = open.iter_mut().find(|open| open.socket == socket && open.of == of) else {
            let message = format!("no connection to the DHCP service at {socket} was opened before this run began");
            let error = OpError::new(ErrorCode::Unsupported, socket, message);
            return Err(Unanswered { is_absent: true, is_late: false, error });
        };
        // The earlier request was late, and not this request.
        let channel =
            connection.channel.as_mut().map_err(|unanswered| Unanswered { is_late: false, ..unanswered.clone() })?;
        let namespace = self.namespace.borrow();
        // A release names only the attachment, without a namespace: the namespace's path may now lead elsewhere.
        let namespace = namespace.as_ref().filter(|_| !matches!(ask, Ask::Release(_))).map(AsFd::as_fd);
        let answer = channel.ask(ask, namespace, deadline).map_err(|error| unanswered(socket, &error));
        if let Err(unanswered) = &answer {
            // The connection is not used again: a late answer would be taken for the answer to the next request.
            connection.channel = Err(unanswered.clone());
        }
        answer
    }

    /// Asks the DHCP service at a socket about this attachment. `about` makes the request.
    pub fn ask_service(
        &self,
        request: &Request,
        deadline: &Deadline,
        socket: &str,
        about: impl FnOnce(Attachment) -> Ask,
    ) -> Result<Answer, OpError> {
        let ask = about(attachment(request));
        let until = match &ask {
            Ask::Acquire(_) => deadline.answer_by(),
            Ask::Check(_) | Ask::Release(_) | Ask::Leases | Ask::Alive => deadline.at().min(Instant::now() + SOON),
        };
        let (is_acquire, began) = (matches!(ask, Ask::Acquire(_)), Instant::now());
        let answer = self.ask(socket, DhcpUse::Plugin, &ask, until).map_err(|unanswered| {
            // After a very short wait, nothing is known of the server.
            let waited = began.elapsed();
            match unanswered.is_late && is_acquire && waited >= A_WHILE {
                true => without_lease(request, socket, waited),
                false => unanswered.error,
            }
        });
        match answer? {
            Answer::Refused { code, words, details } => Err(refused(socket, code, words, details)),
            answer @ (Answer::Lease(_) | Answer::Done | Answer::Leases(_)) => Ok(answer),
        }
    }

    /// Gives the attachment's lease back, once in a run. An absent service is no error: when the service runs again, it
    /// ends the leases of namespaces that are gone. The server ends each lease when its time is over.
    pub fn release(&self, request: &Request, deadline: &Deadline, socket: &str) -> Result<(), OpError> {
        if self.released.borrow().iter().any(|released| released == socket) {
            return Ok(());
        }
        let until = deadline.at().min(Instant::now() + SOON);
        match self.ask(socket, DhcpUse::Release, &Ask::Release(attachment(request)), until) {
            Ok(Answer::Refused { code, words, details }) => Err(refused(socket, code, words, details)),
            Ok(Answer::Lease(_) | Answer::Done | Answer::Leases(_)) => {
                self.released.borrow_mut().push(socket.to_owned());
                Ok(())
            }
            Err(Unanswered { is_absent: true, error, .. }) => {
                let (name, why) = (request.attachment(), error.message);
                crate::say!("postern: {name}: the DHCP lease is not given back, and ends when its time is over: {why}");
                Ok(())
            }
            Err(Unanswered { is_absent: false, error, .. }) => Err(error),
        }
    }

    /// Opens the connections to these services that this run may need. Later no other connection can be opened. If a
    /// service does not answer, the operation that needs the service reports the error.
    pub fn open_for(&self, verb: Verb, deadline: &Deadline, sockets: &[String]) {
        let uses: &[DhcpUse] = match verb {
            Verb::Add => &[DhcpUse::Plugin, DhcpUse::Release],
            Verb::Del | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => &[DhcpUse::Plugin],
        };
        for socket in sockets {
            for of in uses {
                // A second connection is not tried after a timeout, because it would also time out.
                match self.why_stuck(socket) {
                    Some(why) => self.keep_connection(socket, *of, Err(why)),
                    None => self.connect(socket, *of, deadline.at()),
                }
            }
        }
        self.is_sealed.set(true);
    }
}

/// The hint if no service answers.
const START: &str =
    "start the service (package postern-dhcp): `systemctl enable --now postern-dhcp.socket`, or `postern dhcp serve`";

/// Returns the error for a service whose socket exists, but that takes no connection.
fn stuck(socket: &str) -> OpError {
    let message = format!("the DHCP service at {socket} took no connection in time: it is stuck");
    OpError::new(ErrorCode::Deadline, socket, message)
        .hint("restart the service: `systemctl restart postern-dhcp.service`, or end the process that has the socket")
}

fn unanswered(socket: &str, error: &ServiceError) -> Unanswered {
    let new = |code, message: String| OpError::new(code, socket, message);
    let said = format!("the DHCP service at {socket} {error}");
    let (is_absent, error) = match error {
        ServiceError::Deadline => {
            let message = format!("the DHCP service at {socket} gave no answer in the time of this run");
            return Unanswered { is_absent: false, is_late: true, error: new(ErrorCode::Deadline, message) };
        }
        ServiceError::Absent(why) => {
            // The native plugin's words.
            let message = format!("error dialing DHCP daemon: dial unix {socket}: connect: {}", why.to_lowercase());
            (true, new(ErrorCode::Unsupported, message).hint(START))
        }
        // A native service that gave a lease keeps the lease, and ends it when the container is gone.
        ServiceError::Native => {
            (true, new(ErrorCode::Unsupported, said).hint(format!("change to Postern's service: `{SWITCH}`")))
        }
        // A service that was killed can't be asked again by this run.
        ServiceError::Closed => (true, new(ErrorCode::Io, said)),
        ServiceError::Untrusted(_) | ServiceError::Malformed(_) | ServiceError::NotNow(_) | ServiceError::Io(_) => {
            (false, new(ErrorCode::Io, said))
        }
    };
    Unanswered { is_absent, is_late: false, error }
}

/// Makes the error for the guest from the refusal of a service: unchanged words, in the form of a delegate's error.
pub fn refused(socket: &str, code: u32, words: String, details: String) -> OpError {
    let mut error = OpError::new(ErrorCode::Delegate, socket, words.clone());
    error.delegate = Some(crate::errors::of_program(postern_cni::Error::new(code, words).with_details(details)));
    error
}

/// Returns the error for a service that got no lease in the time of this run, with the most likely reason. The service
/// continues to ask until its client disconnects.
fn without_lease(request: &Request, socket: &str, waited: Duration) -> OpError {
    let message = format!(
        "no lease within {} s: no DHCP server answers on \"{}\", or the DHCP service at {socket} is stuck",
        waited.as_secs(),
        request.ifname
    );
    OpError::new(ErrorCode::Deadline, socket, message).hint(
        "look for a server on the network of this link (`tcpdump -ni any port 67 or port 547`), and for a firewall or a VLAN \
         between; `postern doctor` tells whether the service answers",
    )
}

fn attachment(request: &Request) -> Attachment {
    Attachment {
        container_id: request.container_id.clone(),
        network: request.conf.name.clone(),
        ifname: request.ifname.clone(),
        netns: request.netns.clone(),
        args: request.args().to_owned(),
        configuration: request.stdin.to_string(),
        // A new lease has the families from a valid configuration. The return of a lease does not use them.
        families: families(&request.stdin).unwrap_or_default(),
    }
}
