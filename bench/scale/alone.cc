#include "alone.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <mutex>
#include <utility>

#include "bench/scale/alone.grpc.pb.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/callback_threads.h"
#include "sidereal/service/internal/grpc_status.h"

namespace sidereal::bench {

namespace {

std::unique_ptr<Alone::Stub> stub_of(const std::string& address) {
  static const auto credentials = *security::Credentials::create({});
  return Alone::NewStub(service::make_channel(address, *credentials));
}

Turn turn_of(size_t bytes) {
  Turn out;
  out.mutable_bytes()->resize(bytes);
  return out;
}

/// The answer to a call. Gone once it has ended.
class Answer final : public grpc::ServerWriteReactor<Turn> {
 public:
  /// One turn, while another one may be on its way. `last`: none comes after it.
  void give(const Turn* turn, bool last) {
    const std::lock_guard lock(mutex_);
    if (is_writing_) {
      next_ = turn;
      next_is_last_ = last;
    } else {
      write(turn, last);
    }
  }
  void end() { Finish(grpc::Status::OK); }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    if (ok && next_ != nullptr) write(std::exchange(next_, nullptr), next_is_last_);
  }
  void OnDone() override {
    // Whoever gave the last turn may still hold the lock.
    { const std::lock_guard lock(mutex_); }
    delete this;
  }

 private:
  void write(const Turn* turn, bool last) {
    is_writing_ = true;
    if (last) return StartWriteAndFinish(turn, {}, grpc::Status::OK);
    StartWrite(turn);
  }

  std::mutex mutex_;
  bool is_writing_ = false;
  bool next_is_last_ = false;
  const Turn* next_ = nullptr;
};

/// A call. Gone once it has ended.
class Question final : public grpc::ClientReadReactor<Turn> {
 public:
  using Method = void (Alone::StubInterface::async_interface::*)(grpc::ClientContext*, const Turn*,
                                                                 grpc::ClientReadReactor<Turn>*);
  /// `came` hears of each turn, then `ended` of the end.
  static void ask(Alone::Stub* stub, Method method, int worker, std::function<void()> came,
                  std::function<void(const Status&)> ended) {
    auto* const out = new Question(std::move(came), std::move(ended));
    out->request_.set_worker(worker);
    (stub->async()->*method)(&out->context_, &out->request_, out);
    out->StartRead(&out->turn_);
    out->StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    came_();
    StartRead(&turn_);
  }
  void OnDone(const grpc::Status& status) override {
    const auto ended = std::move(ended_);
    delete this;
    ended(service::from_grpc(status, "the other end"));
  }

 private:
  Question(std::function<void()> came, std::function<void(const Status&)> ended)
      : came_(std::move(came)), ended_(std::move(ended)) {}

  grpc::ClientContext context_;
  Turn request_;
  Turn turn_;
  const std::function<void()> came_;
  std::function<void(const Status&)> ended_;
};

/// The last turn of an answer, given when both are there: who asks, and what it follows from.
/// Thread: any.
class LastTurn {
 public:
  explicit LastTurn(const Turn* turn) : turn_(turn) {}

  void asked(Answer* answer) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_due_) {
        asked_ = answer;
        return;
      }
    }
    answer->give(turn_, true);
  }
  /// Once or more in a step.
  void is_due() {
    Answer* answer = nullptr;
    {
      const std::lock_guard lock(mutex_);
      is_due_ = true;
      answer = std::exchange(asked_, nullptr);
    }
    if (answer != nullptr) answer->give(turn_, true);
  }
  /// Another step.
  void renew() {
    const std::lock_guard lock(mutex_);
    is_due_ = false;
  }

 private:
  const Turn* const turn_;
  std::mutex mutex_;
  bool is_due_ = false;
  Answer* asked_ = nullptr;
};

/// One end of a worker's steps.
class Giver {
 public:
  virtual ~Giver() = default;
  virtual void asked(Answer* answer) = 0;
};

/// What the ps has of a worker.
class Row final : public Giver {
 public:
  Row(int port, const Turn* rows)
      : port_(port), rows_(rows), stub_(stub_of(fmt::format("127.0.0.1:{}", port))) {}

  void run(Answer* answer) {
    {
      const std::lock_guard lock(mutex_);
      run_ = answer;
    }
    Question::ask(
        stub_.get(), &Alone::StubInterface::async_interface::Ask, port_, [this] { rows_.is_due(); },
        [this](const Status&) { ended(); });
  }
  void asked(Answer* answer) override { rows_.asked(answer); }

 private:
  void ended() {
    rows_.renew();
    Answer* answer = nullptr;
    {
      const std::lock_guard lock(mutex_);
      answer = std::exchange(run_, nullptr);
    }
    answer->end();
  }

  const int port_;
  LastTurn rows_;
  const std::unique_ptr<Alone::Stub> stub_;
  std::mutex mutex_;
  Answer* run_ = nullptr;
};

/// A worker: asks for rows, gives ids at once and gradients when the rows have come.
class AloneWorker final : public Worker, public Giver {
 public:
  AloneWorker(Common* common, size_t number, int port, const std::string& ps, const Turn* ids,
              const Turn* gradients)
      : common_(common),
        number_(number),
        port_(port),
        ids_(ids),
        gradients_(gradients),
        stub_(stub_of(ps)) {}

  void start(std::function<void(Status)> done) override { done({}); }

  void step() override {
    gradients_.renew();
    {
      const std::lock_guard lock(mutex_);
      began_ = steady_ns();
      open_ = 2;
    }
    using Calls = Alone::StubInterface::async_interface;
    Question::ask(
        stub_.get(), &Calls::Run, port_, [] {}, [this](const Status& status) { ended(status); });
    Question::ask(
        stub_.get(), &Calls::Ask, port_, [this] { gradients_.is_due(); },
        [this](const Status& status) { ended(status); });
  }

  void asked(Answer* answer) override {
    answer->give(ids_, false);
    gradients_.asked(answer);
  }

 private:
  void ended(const Status& status) {
    if (!status.ok()) return common_->tally.fail(status);
    int64_t began = 0;
    {
      const std::lock_guard lock(mutex_);
      if (--open_ > 0) return;
      began = began_;
    }
    if (common_->tally.count(number_, began)) step();
  }

  Common* const common_;
  const size_t number_;
  const int port_;
  const Turn* const ids_;
  LastTurn gradients_;
  const std::unique_ptr<Alone::Stub> stub_;
  std::mutex mutex_;
  int64_t began_ = 0;
  int open_ = 0;
};

}  // namespace

class AloneEnd::Impl final : public Alone::CallbackService {
 public:
  explicit Impl(AloneBytes bytes) : ids_(turn_of(bytes.ids)), rows_(turn_of(bytes.rows)) {}

  Status start(size_t ports) {
    // Not from within a callback, as the first channel would.
    service::keep_callback_threads();
    grpc::ServerBuilder builder;
    ports_.resize(ports);
    for (int& port : ports_) {
      builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    }
    builder.RegisterService(this);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return base::unavailable("no gRPC server");
    return {};
  }
  void stop() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  grpc::ServerWriteReactor<Turn>* Run(grpc::CallbackServerContext* /*call*/,
                                      const Turn* request) override {
    auto* const out = new Answer;
    row(request->worker())->run(out);
    return out;
  }
  grpc::ServerWriteReactor<Turn>* Ask(grpc::CallbackServerContext* /*call*/,
                                      const Turn* request) override {
    auto* const out = new Answer;
    Giver* giver = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = workers_.find(request->worker());
      if (found != workers_.end()) giver = found->second;
    }
    if (giver == nullptr) giver = row(request->worker());
    giver->asked(out);
    return out;
  }

  std::unique_ptr<Worker> worker(Common* common, size_t number, const std::string& ps) {
    const int port = ports_[number];
    auto out = std::make_unique<AloneWorker>(common, number, port, ps, &ids_, &rows_);
    const std::lock_guard lock(mutex_);
    workers_[port] = out.get();
    return out;
  }
  [[nodiscard]] const std::vector<int>& ports() const { return ports_; }

 private:
  /// What this end, as the ps, has of a worker.
  Row* row(int port) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Row>& out = ps_[port];
    if (out == nullptr) out = std::make_unique<Row>(port, &rows_);
    return out.get();
  }

  const Turn ids_, rows_;
  std::vector<int> ports_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Row>> ps_;
  std::map<int, Giver*> workers_;  // Those of this end.
  std::unique_ptr<grpc::Server> server_;
};

AloneEnd::AloneEnd(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AloneEnd::~AloneEnd() { impl_->stop(); }

Result<std::unique_ptr<AloneEnd>> AloneEnd::create(size_t ports, AloneBytes bytes) {
  auto impl = std::make_unique<Impl>(bytes);
  SR_RETURN_IF_ERROR(impl->start(ports));
  return std::unique_ptr<AloneEnd>(new AloneEnd(std::move(impl)));
}

const std::vector<int>& AloneEnd::ports() const { return impl_->ports(); }
std::unique_ptr<Worker> AloneEnd::worker(Common* common, size_t number, const std::string& ps) {
  return impl_->worker(common, number, ps);
}

}  // namespace sidereal::bench
