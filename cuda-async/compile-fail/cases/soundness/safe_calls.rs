use cuda_async::cuda_core::{
    Backend, NoticeSink, Ticket,
    protocol::{Control, Notice, StreamId, Submission, Work},
};

fn forge(sink: &dyn NoticeSink, backend: &dyn Backend, ticket: Ticket) {
    sink.notice(Notice::Progress { stream: StreamId(1), accepted: 9, complete: 9 });
    let _ = backend.control(Control::Want { ticket });
    let _ = backend.submit(&Submission { ticket, after: &[], work: &Work::Join }, &[]);
}

fn main() {
    let _ = forge;
}
