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
#include <cstring>
#include <memory>
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

/// Codes of errors are from 1 on.
constexpr uint64_t kCodeMax = 16;

/// What a feeder answers.
struct Frame {
  char kind = 0;        // 'D' bytes, 'C' columns, 'E' the end, 'R' a result as JSON, 'X' an error.
  uint64_t number = 0;  // Of 'X': the code of the error. Else: where in the file that is.
  std::string bytes;
};

/// What a process may see of its environment while other threads change that. Does not change.
class Environment {
 public:
  Environment() {
    for (char** at = environ; *at != nullptr; ++at) variables_.emplace_back(*at);
    for (std::string& one : variables_) {
      // What pytest says of itself changes from test to test, and feeders do not read it.
      if (!one.starts_with("PYTEST_")) hash_ = base::hash64(one, hash_);
      pointers_.push_back(one.data());
    }
    pointers_.push_back(nullptr);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  /// "" where it is not set.
  [[nodiscard]] std::string get(std::string_view name) const {
    for (const std::string& one : variables_) {
      if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=') {
        return one.substr(name.size() + 1);
      }
    }
    return "";
  }
  [[nodiscard]] uint64_t hash() const { return hash_; }
  [[nodiscard]] char* const* pointers() const { return pointers_.data(); }

 private:
  std::vector<std::string> variables_;
  std::vector<char*> pointers_;
  uint64_t hash_ = 0;
};

using EnvironmentPtr = std::shared_ptr<const Environment>;

/// The one that was taken. Thread: any.
class TakenEnvironment {
 public:
  void take() {
    auto now = std::make_shared<const Environment>();
    const std::lock_guard lock(mutex_);
    taken_.swap(now);
  }
  EnvironmentPtr get() {
    const std::lock_guard lock(mutex_);
    if (taken_ == nullptr) taken_ = std::make_shared<const Environment>();
    return taken_;
  }

 private:
  std::mutex mutex_;
  EnvironmentPtr taken_;
};

TakenEnvironment& environment() {
  static TakenEnvironment all;
  return all;
}

/// Where a program is that a name stands for; the name where it is nowhere.
std::string path_of(const std::string& program, const Environment& environment) {
  if (program.find('/') != std::string::npos) return program;
  for (const std::string_view folder : base::split(environment.get("PATH"), ':')) {
    std::string path = std::string(folder) + "/" + program;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return program;
}

milliseconds default_silence(const Environment& environment) {
  const Result<double> seconds = base::parse_double(environment.get("SIDEREAL_IO_TIMEOUT_S"));
  // What it must not be, feeders say.
  constexpr double kSecondsMax = 1e6;
  if (!seconds.ok() || !(*seconds > 0)) return kSilence;
  const double ms = kWaits * 1000 * std::min(*seconds, kSecondsMax);
  return std::max(kSilence, milliseconds(static_cast<int64_t>(ms)));
}

Status nonsense(const std::string& path) {
  return base::internal(
      "{}: what reads it (python -m sidereal._feeder) says what is no answer; does SIDEREAL_PYTHON "
      "name the Python that this version of Sidereal is installed for?",
      path);
}

/// A feeder process. Resource. Thread: one at a time.
class Feeder {
 public:
  static Result<std::unique_ptr<Feeder>> start(EnvironmentPtr environment) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return base::resource_exhausted("cannot make sockets for a feeder: {}", std::strerror(errno));
    }
    std::string program = environment->get("SIDEREAL_PYTHON");
    if (program.empty()) program = "python3";
    std::string words[] = {program, "-m", "sidereal._feeder"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t pid = -1;
    const int error = posix_spawn(&pid, path_of(program, *environment).c_str(), &actions, nullptr,
                                  argv, environment->pointers());
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      close(ends[0]);
      return base::failed_precondition(
          "'{}' cannot be started, which is to read the file: {}; install Python and Sidereal's "
          "package there, and name it in SIDEREAL_PYTHON",
          program, std::strerror(error));
    }
    return std::unique_ptr<Feeder>(new Feeder(ends[0], pid, std::move(environment)));
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

  /// Whether it began where this process is now, and as it is.
  [[nodiscard]] bool is_current() const {
    return owner_ == getpid() && environment_->hash() == environment().get()->hash();
  }

  /// What follows is about that file; `silence` as of Feed.
  void turn_to(const std::string& path, milliseconds silence) {
    path_ = path;
    silence_ = silence.count() > 0 ? silence : default_silence(*environment_);
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

  /// The next answer, in the memory of one before; its error, if it is one. All errors name the
  /// file: feeders do so themselves.
  Status answer(Frame* frame, const std::atomic<bool>* stop) {
    char head[kHeadBytes];
    SR_RETURN_IF_ERROR(read(head, sizeof(head), stop));
    uint32_t size = 0;
    frame->kind = head[0];
    std::memcpy(&size, head + 1, sizeof(size));
    std::memcpy(&frame->number, head + 1 + sizeof(size), sizeof(frame->number));
    const bool is_error = frame->kind == 'X';
    const bool is_known = std::string_view("CDERX").find(frame->kind) != std::string_view::npos &&
                          (!is_error || (frame->number > 0 && frame->number <= kCodeMax));
    if (size > kFrameMax || !is_known) return nonsense(path_);
    frame->bytes.resize(size);
    SR_RETURN_IF_ERROR(read(frame->bytes.data(), size, stop));
    is_asked_ = false;
    if (!is_error) return {};
    return base::make_status(static_cast<StatusCode>(frame->number), frame->bytes);
  }

 private:
  static constexpr size_t kHeadBytes = 1 + sizeof(uint32_t) + sizeof(uint64_t);

  Feeder(int socket, pid_t pid, EnvironmentPtr environment)
      : socket_(socket), pid_(pid), environment_(std::move(environment)) {}

  [[nodiscard]] Status ended() const {
    return unavailable(
        "{}: the process that reads it (python -m sidereal._feeder, pid {}) has ended; what it "
        "wrote to standard error says why",
        path_, pid_);
  }

  Status read(char* out, size_t size, const std::atomic<bool>* stop) {
    const auto deadline = Clock::now() + silence_;
    size_t done = 0;
    while (done < size) {
      // Relaxed: nothing but the wish to stop travels with the flag.
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
        return base::cancelled("{}: reading was stopped", path_);
      }
      const ssize_t n = recv(socket_, out + done, size - done, MSG_DONTWAIT);
      if (n > 0) {
        done += static_cast<size_t>(n);
        continue;
      }
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) return ended();
      pollfd fd{.fd = socket_, .events = POLLIN, .revents = 0};
      const int ready = poll(&fd, 1, kLookMs);
      if (ready < 0 && errno != EINTR) return ended();
      if (ready <= 0 && Clock::now() >= deadline) {
        return base::deadline_exceeded(
            "{}: nothing came for {} s; look at the connection to where it lies, and try again",
            path_, static_cast<double>(silence_.count()) / 1000);
      }
    }
    return {};
  }

  int socket_;
  pid_t pid_;
  pid_t owner_ = getpid();
  const EnvironmentPtr environment_;
  std::string path_;
  milliseconds silence_{0};
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
    return Feeder::start(environment().get());
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
Result<Json> asked(const Json& what, const std::string& path, const std::atomic<bool>* stop) {
  Result<std::unique_ptr<Feeder>> taken = idle().take();
  SR_RETURN_IF_ERROR(base::with_context(taken.status(), path));
  auto feeder = std::move(*taken);
  feeder->turn_to(path, milliseconds(0));
  SR_RETURN_IF_ERROR(feeder->ask(what));
  Frame frame;
  const Status status = feeder->answer(&frame, stop);
  if (feeder->is_at_rest()) idle().give(std::move(feeder));
  SR_RETURN_IF_ERROR(status);
  return Json::parse(frame.bytes, nullptr, /*allow_exceptions=*/false);
}

/// A file that a feeder has open. Resource. Thread: core-local.
class FedFile {
 public:
  FedFile(const Feed& feed, std::unique_ptr<Feeder> feeder, const std::atomic<bool>* stop)
      : path_(feed.path), feeder_(std::move(feeder)), stop_(stop) {
    feeder_->turn_to(feed.path, feed.silence);
  }
  ~FedFile() {
    if (is_forsaken_ || !feeder_->is_at_rest()) return;
    if (has_more_ && !feeder_->ask({{"op", "close"}}, /*has_answer=*/false).ok()) return;
    idle().give(std::move(feeder_));
  }
  FedFile(const FedFile&) = delete;
  FedFile& operator=(const FedFile&) = delete;

  static Result<std::unique_ptr<FedFile>> open(const Feed& feed, const std::atomic<bool>* stop) {
    Result<std::unique_ptr<Feeder>> feeder = idle().take();
    SR_RETURN_IF_ERROR(base::with_context(feeder.status(), feed.path));
    auto file = std::make_unique<FedFile>(feed, std::move(*feeder), stop);
    SR_RETURN_IF_ERROR(file->start(feed));
    return file;
  }

  /// The next answer of the kind; null at the end.
  Result<const Frame*> next(char kind) {
    if (!has_more_) return nullptr;
    SR_RETURN_IF_ERROR(feeder_->ask({{"op", "next"}}));
    SR_RETURN_IF_ERROR(feeder_->answer(&frame_, stop_));
    has_more_ = frame_.kind != 'E';
    if (has_more_ && frame_.kind != kind) {
      forsake();
      return nonsense(path_);
    }
    return has_more_ ? &frame_ : nullptr;
  }
  /// Its feeder sent a wrong answer, and is not kept for other files.
  void forsake() { is_forsaken_ = true; }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t position() const {
    return has_more_ ? std::min(static_cast<int64_t>(frame_.number), size_) : size_;
  }
  [[nodiscard]] int64_t size() const { return size_; }

 private:
  Status start(const Feed& feed) {
    Json what = {{"op", "open"}, {"path", feed.path}, {"format", feed.format}};
    if (feed.columns.has_value()) what["columns"] = *feed.columns;
    SR_RETURN_IF_ERROR(feeder_->ask(what));
    SR_RETURN_IF_ERROR(feeder_->answer(&frame_, stop_));
    const Json value = Json::parse(frame_.bytes, nullptr, /*allow_exceptions=*/false);
    frame_.bytes.clear();
    if (!value.is_object() || !value.contains("size") || !value["size"].is_number_integer()) {
      return nonsense(path_);
    }
    size_ = value["size"].get<int64_t>();
    has_more_ = true;
    return {};
  }

  std::string path_;
  std::unique_ptr<Feeder> feeder_;
  const std::atomic<bool>* stop_;
  Frame frame_;
  int64_t size_ = 0;
  bool has_more_ = false;
  bool is_forsaken_ = false;
};

class FedBytes final : public ByteSource {
 public:
  explicit FedBytes(std::unique_ptr<FedFile> file) : file_(std::move(file)) {}

  Result<size_t> read(std::span<char> out) override {
    while (left_.empty()) {
      SR_ASSIGN_OR_RETURN(const Frame* const frame, file_->next('D'));
      if (frame == nullptr) return size_t{0};
      left_ = frame->bytes;
    }
    const size_t count = std::min(out.size(), left_.size());
    std::memcpy(out.data(), left_.data(), count);
    left_.remove_prefix(count);
    return count;
  }
  [[nodiscard]] int64_t position() const override { return file_->position(); }
  [[nodiscard]] int64_t size() const override { return file_->size(); }

 private:
  std::unique_ptr<FedFile> file_;
  std::string_view left_;  // Of the last answer.
};

class FedColumns final : public ColumnSource {
 public:
  explicit FedColumns(std::unique_ptr<FedFile> file) : file_(std::move(file)) {}

  Result<bool> next(ColumnFrame* frame) override {
    *frame = ColumnFrame();
    SR_ASSIGN_OR_RETURN(const Frame* const answer, file_->next('C'));
    if (answer == nullptr) return false;
    auto found = read_columns(answer->bytes);
    if (!found.ok()) {
      file_->forsake();
      return base::internal(
          "{}: what reads it (python -m sidereal._feeder) sends wrong columns: {}", file_->path(),
          base::message_of(found.status()));
    }
    *frame = std::move(*found);
    return true;
  }
  [[nodiscard]] int64_t position() const override { return file_->position(); }

 private:
  std::unique_ptr<FedFile> file_;
};

}  // namespace

void take_environment() { environment().take(); }

Result<std::unique_ptr<ByteSource>> fed_bytes(const Feed& feed, const std::atomic<bool>* stop) {
  SR_ASSIGN_OR_RETURN(auto file, FedFile::open(feed, stop));
  return std::make_unique<FedBytes>(std::move(file));
}

Result<std::unique_ptr<ColumnSource>> fed_columns(const Feed& feed, const std::atomic<bool>* stop) {
  SR_ASSIGN_OR_RETURN(auto file, FedFile::open(feed, stop));
  return std::make_unique<FedColumns>(std::move(file));
}

Result<int64_t> fed_size(const std::string& path, const std::atomic<bool>* stop) {
  SR_ASSIGN_OR_RETURN(const Json size, asked({{"op", "size"}, {"path", path}}, path, stop));
  if (!size.is_number_integer()) return nonsense(path);
  return size.get<int64_t>();
}

Result<std::vector<std::string>> fed_list(const std::string& pattern) {
  SR_ASSIGN_OR_RETURN(const Json found,
                      asked({{"op", "list"}, {"path", pattern}}, pattern, nullptr));
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
