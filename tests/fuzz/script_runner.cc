#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "sidereal/base/check.h"
#include "tests/fuzz/call_script.h"

namespace sidereal::fuzz {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::system_clock;

/// In which every call that is to end ends.
constexpr milliseconds kBound(10'000);
constexpr size_t kCallsMax = 8;
constexpr size_t kRepliesMax = 64;
constexpr size_t kMarkBytes = 8;

struct Call;

enum class Part { kStart, kRead, kWrite, kFinish };

/// What a completion queue gives back.
struct Tag {
  Call* call;
  Part part;
};

struct Call {
  Outcome outcome;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  grpc::ByteBuffer reply;
  grpc::Status status;
  bool deaf = false;
  bool starting = false;
  bool writing = false;
  bool reading = false;
  bool half_closed = false;
  bool broken = false;  // Nothing can be written any more.
  bool finishing = false;
  bool ended = false;
  Tag start{this, Part::kStart};
  Tag read{this, Part::kRead};
  Tag write{this, Part::kWrite};
  Tag finish{this, Part::kFinish};
};

std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  static_cast<void>(buffer.Dump(&slices));
  std::string out;
  for (const grpc::Slice& slice : slices) {
    out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

std::string with_marks(std::string body, const ScriptRunner::Marks& marks) {
  for (const auto& [word, number] : marks) {
    SR_CHECK(word.size() == kMarkBytes, "{} is no mark", word);
    for (size_t at = body.find(word); at != std::string::npos; at = body.find(word, at + 1)) {
      for (size_t i = 0; i < kMarkBytes; ++i) body[at + i] = static_cast<char>(number >> (8 * i));
    }
  }
  return body;
}

}  // namespace

class ScriptRunner::Impl {
 public:
  Impl(const std::vector<Method>& methods, Learn learn, Adapt adapt)
      : learn_(std::move(learn)), adapt_(std::move(adapt)) {
    for (const Method& method : methods) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(method.channel));
    }
  }
  ~Impl() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  std::vector<Outcome> run(const std::vector<Method>& methods, const std::vector<Action>& script,
                           Marks* marks, milliseconds moment) {
    marks_ = marks;
    moment_ = moment;
    for (const Action& action : script) perform(methods, action);
    for (auto& call : calls_) end(call.get());
    std::vector<Outcome> out;
    for (auto& call : calls_) {
      SR_CHECK(until([&] { return call->ended && is_idle(*call); }, kBound),
               "{} did not end within {} ms of its cancellation", call->outcome.type->full_name(),
               kBound.count());
      call->outcome.code = call->status.error_code();
      out.push_back(std::move(call->outcome));
    }
    calls_.clear();
    return out;
  }

 private:
  static bool is_idle(const Call& call) {
    return !call.starting && !call.writing && !call.reading && !call.finishing;
  }

  void perform(const std::vector<Method>& methods, const Action& action) {
    if (action.kind == Action::kOpen) {
      if (calls_.size() == kCallsMax) return;
      const size_t number = action.target % methods.size();
      return open(methods[number], stubs_[number].get(), action);
    }
    if (calls_.empty()) return;
    Call* const call = calls_[action.target % calls_.size()].get();
    const size_t replies = call->outcome.replies.size();
    if (action.kind == Action::kWrite) write(call, action.body);
    if (action.kind == Action::kHalfClose) half_close(call);
    if (action.kind == Action::kCancel) call->context.TryCancel();
    if (action.kind == Action::kAwait || action.awaits) await(call, replies);
  }

  void open(const Method& method, grpc::GenericStub* stub, const Action& action) {
    const auto* const type = method.type;
    Call* const call = calls_.emplace_back(std::make_unique<Call>()).get();
    call->outcome.type = type;
    const bool is_unary =
        !type->client_streaming() && !type->server_streaming() && !method.answers_late;
    call->deaf = action.deaf && !is_unary;
    call->stream = stub->PrepareCall(
        &call->context, "/" + type->service()->full_name() + "/" + type->name(), &queue_);
    call->starting = true;
    call->stream->StartCall(&call->start);
    SR_CHECK(until([&] { return !call->starting; }, kBound), "{} did not begin within {} ms",
             type->full_name(), kBound.count());
    if (!action.body.empty() || !type->client_streaming()) write(call, action.body);
    if (!type->client_streaming()) half_close(call);
    if (is_unary) {
      SR_CHECK(until([&] { return call->ended; }, kBound), "{} was not answered within {} ms",
               type->full_name(), kBound.count());
    } else if (action.awaits) {
      await(call, 0);
    }
  }

  /// Waits until the message before was taken, but not for long: who is not read from may not read.
  bool can_write(Call* call) {
    until([&] { return !call->writing; }, moment_);
    return !call->writing && !call->broken && !call->half_closed && !call->ended;
  }
  void write(Call* call, const std::string& body) {
    if (!can_write(call)) return;
    call->writing = true;
    std::string sent = with_marks(body, *marks_);
    if (adapt_) sent = adapt_(*call->outcome.type, std::move(sent));
    const grpc::Slice slice(sent);
    call->stream->Write(grpc::ByteBuffer(&slice, 1), &call->write);
  }
  void half_close(Call* call) {
    if (!can_write(call)) return;
    call->writing = true;
    call->half_closed = true;
    call->stream->WritesDone(&call->write);
  }
  void await(Call* call, size_t replies) {
    // Who has nothing more to say waits for the end.
    until(
        [&] {
          return call->ended || (!call->half_closed && call->outcome.replies.size() > replies);
        },
        moment_);
  }

  void end(Call* call) {
    if (!call->ended && !call->finishing) {
      call->context.TryCancel();
      if (call->deaf) finish(call);
    }
  }
  void finish(Call* call) {
    call->finishing = true;
    call->stream->Finish(&call->status, &call->finish);
  }

  void happened(Tag* tag, bool ok) {
    Call* const call = tag->call;
    switch (tag->part) {
      case Part::kStart:
        call->starting = false;
        call->broken = !ok;
        if (!call->deaf) read(call);
        break;
      case Part::kRead:
        call->reading = false;
        if (!ok) return finish(call);
        if (call->outcome.replies.size() < kRepliesMax) {
          call->outcome.replies.push_back(bytes_of(call->reply));
          if (learn_) learn_(call->outcome, marks_);
        }
        read(call);
        break;
      case Part::kWrite:
        call->writing = false;
        call->broken |= !ok;
        break;
      case Part::kFinish:
        call->finishing = false;
        call->ended = true;
    }
  }
  static void read(Call* call) {
    call->reading = true;
    call->stream->Read(&call->reply, &call->read);
  }

  /// Lets things happen until `condition` holds; false when it does not in time.
  template <class Condition>
  bool until(Condition condition, milliseconds bound) {
    const Clock::time_point deadline = Clock::now() + bound;
    while (!condition()) {
      void* tag = nullptr;
      bool ok = false;
      if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return false;
      happened(static_cast<Tag*>(tag), ok);
    }
    return true;
  }

  const Learn learn_;
  const Adapt adapt_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;
  Marks* marks_ = nullptr;
  milliseconds moment_{0};
};

ScriptRunner::ScriptRunner(std::vector<Method> methods, Learn learn, Adapt adapt)
    : methods_(std::move(methods)),
      impl_(std::make_unique<Impl>(methods_, std::move(learn), std::move(adapt))) {}
ScriptRunner::~ScriptRunner() = default;
std::vector<Outcome> ScriptRunner::run(const std::vector<Action>& script, Marks* marks,
                                       milliseconds moment) {
  return impl_->run(methods_, script, marks, moment);
}

}  // namespace sidereal::fuzz
