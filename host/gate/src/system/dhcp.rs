//! The connections of a run to DHCP services.
//!
//! A confined process can open none. So a run opens them before: one to ask, and one to give back what a failed ADD got.
//! The first one may still wait for an answer then.

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

/// The longest time to wait for a connection, and for an answer that needs no server.
const SOON: Duration = Duration::from_secs(10);

/// A wait that tells something. A shorter one only tells that the run had no time left.
const A_WHILE: Duration = Duration::from_secs(1);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhcpUse {
    /// All that a plugin asks.
    Plugin,
    /// Giving leases back.
    Release,
}

/// The reason why a service was not asked, or did not answer.
#[derive(Clone, Debug)]
struct Unanswered {
    /// True if it is not there: nothing was asked, or the connection broke.
    is_absent: bool,
    /// True if this question reached it, and the time was over before an answer came.
    is_late: bool,
    error: OpError,
}

struct Connection {
    socket: String,
    of: DhcpUse,
    channel: Result<Channel, Unanswered>,
}

/// See the module.
#[derive(Default)]
pub struct DhcpConnections {
    open: RefCell<Vec<Connection>>,
    /// The container's namespace, for the service to look at.
    namespace: RefCell<Option<OwnedFd>>,
    /// True if no further connection can be opened.
    is_sealed: Cell<bool>,
    /// Services that have given this attachment's lease back in this run. They are not asked again.
    released: RefCell<Vec<String>>,
}

impl DhcpConnections {
    /// Keeps a descriptor of the container's namespace.
    pub fn keep(&self, namespace: &Namespace) -> std::io::Result<()> {
        *self.namespace.borrow_mut() = Some(namespace.fd().try_clone_to_owned()?);
        Ok(())
    }

    fn connect(&self, socket: &str, of: DhcpUse, deadline: Instant) {
        // Half of the time is left to the run, which says what is wrong and undoes what it did.
        let began = Instant::now();
        let deadline = began + SOON.min(deadline.saturating_duration_since(began) / 2);
        let channel = Channel::connect(Path::new(socket), deadline).map_err(|error| Unanswered {
            // Nothing was asked, and a DEL has nothing to wait for. A service that this process could not reach may have the
            // lease, and is asked by the next run.
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
        // A run that opened one for a use has it for all, unless it may have two asks at a time.
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
        // An earlier question was late, not this one.
        let channel =
            connection.channel.as_mut().map_err(|unanswered| Unanswered { is_late: false, ..unanswered.clone() })?;
        let namespace = self.namespace.borrow();
        // Leases are given back by their names alone: the path of a namespace may lead elsewhere by now.
        let namespace = namespace.as_ref().filter(|_| !matches!(ask, Ask::Release(_))).map(AsFd::as_fd);
        let answer = channel.ask(ask, namespace, deadline).map_err(|error| unanswered(socket, &error));
        if let Err(unanswered) = &answer {
            // An answer that comes late would be taken for that of the next question.
            connection.channel = Err(unanswered.clone());
        }
        answer
    }

    /// Asks the DHCP service at a socket about this attachment, as `about` says.
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
            // With no time left from the start, nothing is known of a server.
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

    /// Gives the attachment's lease back, once in a run. Without a service it is success: the service ends the leases of namespaces that
    /// are gone, and the server ends each when its time is over.
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
                crate::say!("postern: {name}: the DHCP lease is not given back, and ends with its time: {why}");
                Ok(())
            }
            Err(Unanswered { is_absent: false, error, .. }) => Err(error),
        }
    }

    /// Opens the connections to these services that this run may need, and lets no other be opened later. Where a service
    /// does not answer, the operation that needs it says so.
    pub fn open_for(&self, verb: Verb, deadline: &Deadline, sockets: &[String]) {
        let uses: &[DhcpUse] = match verb {
            Verb::Add => &[DhcpUse::Plugin, DhcpUse::Release],
            Verb::Del | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => &[DhcpUse::Plugin],
        };
        for socket in sockets {
            for of in uses {
                // A second one would wait in vain too.
                match self.why_stuck(socket) {
                    Some(why) => self.keep_connection(socket, *of, Err(why)),
                    None => self.connect(socket, *of, deadline.at()),
                }
            }
        }
        self.is_sealed.set(true);
    }
}

/// The way out if no service answers.
const START: &str = "start it: `systemctl enable --now postern-dhcp.socket`, or `postern dhcp serve`";

/// The error of a service that takes no connection, though its socket is there.
fn stuck(socket: &str) -> OpError {
    let message = format!("the DHCP service at {socket} took no connection in time: it is stuck");
    OpError::new(ErrorCode::Deadline, socket, message)
        .hint("restart it: `systemctl restart postern-dhcp.service`, or end the process that has the socket")
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
        // It has the lease, if it gave one, and ends it when the container is gone.
        ServiceError::Native => {
            (true, new(ErrorCode::Unsupported, said).hint(format!("change to Postern's service: `{SWITCH}`")))
        }
        // One that was killed can't be asked again by this run.
        ServiceError::Closed => (true, new(ErrorCode::Io, said)),
        ServiceError::Untrusted(_) | ServiceError::Malformed(_) | ServiceError::NotNow(_) | ServiceError::Io(_) => {
            (false, new(ErrorCode::Io, said))
        }
    };
    Unanswered { is_absent, is_late: false, error }
}

/// Converts the refusal of a service to the form that a guest gets: unchanged, as that of a delegate.
pub fn refused(socket: &str, code: u32, words: String, details: String) -> OpError {
    let mut error = OpError::new(ErrorCode::Delegate, socket, words.clone());
    error.delegate = Some(crate::errors::of_program(postern_cni::Error::new(code, words).with_details(details)));
    error
}

/// Says what it mostly means that a service has got no lease in the time of this run. The service goes on asking until its
/// client goes.
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
        // A lease is given back whatever they are. One that begins has them from a configuration that can be read.
        families: families(&request.stdin).unwrap_or_default(),
    }
}
