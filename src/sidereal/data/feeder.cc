#include "sidereal/data/feeder.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "sidereal/base/hash.h"
#include "sidereal/base/strings.h"

extern char** environ;

namespace sidereal::data {
namespace {

using base::unavailable;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using std::chrono::milliseconds;

/// A feeder gives up waiting for a server by itself, after SIDEREAL_IO_TIMEOUT_S and some attempts:
/// this is for one that hangs.
constexpr milliseconds kSilence{240'000};
/// Attempts of a feeder, and one for what else it does.
constexpr int kWaits = 4;
/// Between two looks at the flag that ends reading.
constexpr int kLookMs = 100;
/// Feeders kept that have nothing to do.
constexpr size_t kIdleMax = 4;
constexpr uint32_t kFrameMax = uint32_t{1} << 30;

/// What a feeder answers.
struct Frame {
  char kind = 0;  // 'D' bytes of text, 'E' the end, 'R' a result as JSON, 'X' an error.
  uint64_t position = 0;
  std::string bytes;
};

StatusCode code_of(const std::string& name) {
  for (int code = 1; code <= 16; ++code) {
    if (name == base::code_name(static_cast<StatusCode>(code)))
      return static_cast<StatusCode>(code);
  }
  return StatusCode::kInternal;
}

milliseconds default_silence() {
  const char* const said = std::getenv("SIDEREAL_IO_TIMEOUT_S");
  const Result<double> seconds = base::parse_double(said == nullptr ? "" : said);
  // What it must not be, feeders say.
  constexpr double kSecondsMax = 1e6;
  if (!seconds.ok() || !(*seconds > 0)) return kSilence;
  const double ms = kWaits * 1000 * std::min(*seconds, kSecondsMax);
  return std::max(kSilence, milliseconds(static_cast<int64_t>(ms)));
}

/// Of all variables: feeders began with those of then. What pytest says of itself changes from test
/// to test, and feeders do not read it.
uint64_t environment() {
  uint64_t hash = 0;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view one = *at;
    if (!one.starts_with("PYTEST_")) hash = base::hash64(one, hash);
  }
  return hash;
}

/// `status` with the file in it, which feeders name themselves.
Status about(const Status& status, const std::string& path) {
  const bool is_named = status.ok() || base::message_of(status).find(path) != std::string::npos;
  return is_named ? status : base::with_context(status, path);
}

/// A feeder process. Resource. Thread: one at a time.
class Feeder {
 public:
  static Result<std::unique_ptr<Feeder>> start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return base::resource_exhausted("cannot make sockets for a feeder: {}", std::strerror(errno));
    }
    const char* const named = std::getenv("SIDEREAL_PYTHON");
    std::string program = named == nullptr || *named == '\0' ? "python3" : named;
    std::string words[] = {program, "-m", "sidereal._feeder"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t pid = -1;
    const int error = posix_spawnp(&pid, program.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      close(ends[0]);
      return base::failed_precondition(
          "'{}' cannot be started, which is to read the file: {}; install Python and Sidereal's "
          "package there, and name it in SIDEREAL_PYTHON",
          program, std::strerror(error));
    }
    return std::unique_ptr<Feeder>(new Feeder(ends[0], pid));
  }

  ~Feeder() {
    close(socket_);
    // A process that was forked is not its parent.
    if (owner_ != getpid()) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  [[nodiscard]] static Status nonsense() {
    return base::internal(
        "what reads it (python -m sidereal._feeder) says what is no answer; does SIDEREAL_PYTHON "
        "name the Python that this version of Sidereal is installed for?");
  }

  /// Whether it began where this process is now, and as it is.
  [[nodiscard]] bool is_current() const {
    return owner_ == getpid() && environment_ == environment();
  }

  void wait_at_most(milliseconds silence) {
    silence_ = silence.count() > 0 ? silence : default_silence();
  }

  /// Whether it has answered all that it was asked, errors too, so that others may ask it.
  [[nodiscard]] bool is_at_rest() const { return !is_asked_; }

  Status ask(const Json& what, bool has_answer = true) {
    is_asked_ = true;
    const std::string line = what.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    size_t done = 0;
    while (done < line.size()) {
      const ssize_t n = send(socket_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return ended();
      done += static_cast<size_t>(n);
    }
    is_asked_ = has_answer;
    return {};
  }

  /// The next answer; its error, if it is one.
  Result<Frame> answer(const std::atomic<bool>* stop) {
    char head[kHeadBytes];
    SR_RETURN_IF_ERROR(read(head, sizeof(head), stop));
    Frame frame;
    uint32_t size = 0;
    frame.kind = head[0];
    std::memcpy(&size, head + 1, sizeof(size));
    std::memcpy(&frame.position, head + 1 + sizeof(size), sizeof(frame.position));
    if (size > kFrameMax || std::string_view("DERX").find(frame.kind) == std::string_view::npos) {
      return nonsense();
    }
    frame.bytes.resize(size);
    SR_RETURN_IF_ERROR(read(frame.bytes.data(), size, stop));
    is_asked_ = false;
    if (frame.kind != 'X') return frame;
    const size_t line = std::min(frame.bytes.find('\n'), frame.bytes.size());
    return base::make_status(code_of(frame.bytes.substr(0, line)),
                             frame.bytes.substr(std::min(line + 1, frame.bytes.size())));
  }

 private:
  static constexpr size_t kHeadBytes = 1 + sizeof(uint32_t) + sizeof(uint64_t);

  Feeder(int socket, pid_t pid) : socket_(socket), pid_(pid) {}

  [[nodiscard]] Status ended() const {
    return unavailable(
        "the process that reads it (python -m sidereal._feeder, pid {}) has ended; what it wrote "
        "to standard error says why",
        pid_);
  }

  Status read(char* out, size_t size, const std::atomic<bool>* stop) {
    const auto deadline = Clock::now() + silence_;
    size_t done = 0;
    while (done < size) {
      // Relaxed: nothing but the wish to stop travels with the flag.
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
        return base::cancelled("reading was stopped");
      }
      pollfd fd{.fd = socket_, .events = POLLIN, .revents = 0};
      const int ready = poll(&fd, 1, kLookMs);
      if (ready < 0 && errno != EINTR) return ended();
      if (ready <= 0) {
        if (Clock::now() < deadline) continue;
        return base::deadline_exceeded(
            "nothing came for {} s; look at the connection to where it lies, and try again",
            static_cast<double>(silence_.count()) / 1000);
      }
      const ssize_t n = recv(socket_, out + done, size - done, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return ended();
      done += static_cast<size_t>(n);
    }
    return {};
  }

  int socket_;
  pid_t pid_;
  pid_t owner_ = getpid();
  uint64_t environment_ = environment();
  milliseconds silence_ = default_silence();
  bool is_asked_ = false;
};

/// Feeders that have nothing to do. Thread: any.
class Idle {
 public:
  Result<std::unique_ptr<Feeder>> take() {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(feeders_, [](const auto& one) { return !one->is_current(); });
      if (!feeders_.empty()) {
        auto feeder = std::move(feeders_.back());
        feeders_.pop_back();
        return feeder;
      }
    }
    return Feeder::start();
  }

  void give(std::unique_ptr<Feeder> feeder) {
    const std::lock_guard lock(mutex_);
    if (feeders_.size() < kIdleMax && feeder->is_current()) feeders_.push_back(std::move(feeder));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Feeder>> feeders_;
};

Idle& idle() {
  static Idle all;
  return all;
}

/// A question with one answer.
Result<Json> asked(const Json& what, const std::string& path) {
  SR_ASSIGN_OR_RETURN(auto feeder, idle().take());
  feeder->wait_at_most(milliseconds(0));
  SR_RETURN_IF_ERROR(about(feeder->ask(what), path));
  Result<Frame> frame = feeder->answer(nullptr);
  if (feeder->is_at_rest()) idle().give(std::move(feeder));
  if (!frame.ok()) return about(frame.status(), path);
  return Json::parse(frame->bytes, nullptr, /*allow_exceptions=*/false);
}

class FedBytes final : public ByteSource {
 public:
  FedBytes(std::string path, std::unique_ptr<Feeder> feeder, const std::atomic<bool>* stop)
      : path_(std::move(path)), feeder_(std::move(feeder)), stop_(stop) {}
  ~FedBytes() override {
    if (!feeder_->is_at_rest()) return;
    if (has_more_ && !feeder_->ask({{"op", "close"}}, /*has_answer=*/false).ok()) return;
    idle().give(std::move(feeder_));
  }
  FedBytes(const FedBytes&) = delete;
  FedBytes& operator=(const FedBytes&) = delete;

  Status start(const Feed& feed) {
    const Json what = {{"op", "open"},
                       {"path", feed.path},
                       {"format", feed.format},
                       {"delimiter", std::string(1, feed.delimiter)}};
    feeder_->wait_at_most(feed.silence);
    SR_RETURN_IF_ERROR(about(feeder_->ask(what), path_));
    Result<Frame> frame = feeder_->answer(stop_);
    if (!frame.ok()) return about(frame.status(), path_);
    const Json value = Json::parse(frame->bytes, nullptr, /*allow_exceptions=*/false);
    if (!value.is_object() || !value.contains("size") || !value["size"].is_number_integer()) {
      return about(Feeder::nonsense(), path_);
    }
    size_ = value["size"].get<int64_t>();
    has_more_ = true;
    return {};
  }

  Result<size_t> read(std::span<char> out) override {
    while (at_ == frame_.bytes.size()) {
      if (!has_more_) return size_t{0};
      SR_RETURN_IF_ERROR(about(feeder_->ask({{"op", "next"}}), path_));
      Result<Frame> frame = feeder_->answer(stop_);
      if (!frame.ok()) return about(frame.status(), path_);
      frame_ = std::move(*frame);
      at_ = 0;
      if (frame_.kind == 'E') has_more_ = false;
    }
    const size_t count = std::min(out.size(), frame_.bytes.size() - at_);
    std::memcpy(out.data(), frame_.bytes.data() + at_, count);
    at_ += count;
    return count;
  }
  [[nodiscard]] int64_t position() const override {
    return has_more_ ? std::min(static_cast<int64_t>(frame_.position), size_) : size_;
  }
  [[nodiscard]] int64_t size() const override { return size_; }

 private:
  std::string path_;
  std::unique_ptr<Feeder> feeder_;
  const std::atomic<bool>* stop_;
  Frame frame_;
  size_t at_ = 0;
  int64_t size_ = 0;
  bool has_more_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> fed_bytes(const Feed& feed, const std::atomic<bool>* stop) {
  Result<std::unique_ptr<Feeder>> feeder = idle().take();
  if (!feeder.ok()) return about(feeder.status(), feed.path);
  auto source = std::make_unique<FedBytes>(feed.path, std::move(*feeder), stop);
  SR_RETURN_IF_ERROR(source->start(feed));
  return source;
}

Result<int64_t> fed_size(const std::string& path) {
  SR_ASSIGN_OR_RETURN(const Json size, asked({{"op", "size"}, {"path", path}}, path));
  if (!size.is_number_integer()) return about(Feeder::nonsense(), path);
  return size.get<int64_t>();
}

Result<std::vector<std::string>> fed_list(const std::string& pattern) {
  SR_ASSIGN_OR_RETURN(const Json found, asked({{"op", "list"}, {"path", pattern}}, pattern));
  std::vector<std::string> names;
  for (const Json& one : found) {
    if (one.is_string()) names.push_back(one.get<std::string>());
  }
  if (names.empty()) {
    return base::not_found("no file matches '{}'; check the path of the data", pattern);
  }
  return names;
}

}  // namespace sidereal::data
