#include "sidereal/service/voting.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <string_view>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::service {

namespace v1 = session::v1;
using membership::Ask;
using membership::Vote;
using membership::Voter;

namespace {

constexpr std::string_view kFirstLine = "sidereal votes 1";
constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;
/// How often it is looked for those that are silent.
constexpr std::chrono::milliseconds kLook{100};

void to_proto(const membership::ProcessId& process, v1::ProcessId* out) {
  out->set_machine(process.machine);
  out->set_pid(process.pid);
  out->set_started(process.started);
}
membership::ProcessId from_proto(const v1::ProcessId& given) {
  return {.machine = given.machine(), .pid = given.pid(), .started = given.started()};
}

std::string to_text(const std::vector<Voter::Record>& records) {
  std::string out = fmt::format("{}\n", kFirstLine);
  for (const Voter::Record& one : records) {
    out += fmt::format("{} {:016x} {}\n", one.view, one.life, one.task);
  }
  return out + fmt::format("end {}\n", records.size());
}

bool read_number(std::string_view text, int base, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return error == std::errc() && end == text.data() + text.size() && *out != 0;
}

Result<std::vector<Voter::Record>> from_text(const std::string& text, const std::string& path) {
  const auto damaged = [&path](size_t line) {
    return base::data_loss(
        "{} is no file of votes, or is damaged: line {}; if no other copy of it is there, remove "
        "it when no two starts of a parameter server run",
        path, line + 1);
  };
  const std::vector<std::string> lines = base::split(text, '\n');
  if (lines.size() < 3 || lines.front() != kFirstLine) return damaged(0);
  const size_t records = lines.size() - 3;
  if (lines[records + 1] != fmt::format("end {}", records) || !lines.back().empty()) {
    return damaged(records + 1);
  }
  std::vector<Voter::Record> out;
  for (size_t i = 1; i <= records; ++i) {
    const std::string_view line = lines[i];
    const size_t first = line.find(' ');
    const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second == std::string_view::npos) return damaged(i);
    Voter::Record one{.task = std::string(line.substr(second + 1))};
    const std::string_view life = line.substr(first + 1, second - first - 1);
    if (!read_number(line.substr(0, first), 10, &one.view) || !read_number(life, 16, &one.life) ||
        one.task.empty()) {
      return damaged(i);
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

void to_proto(const Ask& ask, v1::AskVoteRequest* out) {
  out->set_task(ask.task);
  out->set_life(ask.life);
  to_proto(ask.process, out->mutable_process());
  out->set_round(ask.round);
  out->set_lease_ns(ask.lease_ns);
  out->set_view(ask.view);
  out->set_held(ask.held);
  out->set_is_second(ask.is_second);
  out->set_gives_up(ask.gives_up);
  out->set_gone(ask.gone);
}

Ask from_proto(const v1::AskVoteRequest& given) {
  return {.task = given.task(),
          .life = given.life(),
          .process = from_proto(given.process()),
          .round = given.round(),
          .lease_ns = given.lease_ns(),
          .view = given.view(),
          .held = given.held(),
          .is_second = given.is_second(),
          .gives_up = given.gives_up(),
          .gone = given.gone()};
}

void to_proto(const Vote& vote, v1::AskVoteReply* out) {
  out->set_is_granted(vote.is_granted);
  out->set_is_deposed(vote.is_deposed);
  out->set_view(vote.view);
  out->set_life(vote.life);
  to_proto(vote.process, out->mutable_process());
  out->set_wait_ns(vote.wait_ns);
}

Vote from_proto(const v1::AskVoteReply& given) {
  return {.is_granted = given.is_granted(),
          .is_deposed = given.is_deposed(),
          .view = given.view(),
          .life = given.life(),
          .process = from_proto(given.process()),
          .wait_ns = given.wait_ns()};
}

Voting::Voting(VotingOptions options)
    : options_(std::move(options)),
      clock_(sys::posix::create_clock()),
      disk_(sys::posix::create_disk()) {}

Result<std::unique_ptr<Voting>> Voting::create(VotingOptions options) {
  std::unique_ptr<Voting> out(new Voting(std::move(options)));
  SR_RETURN_IF_ERROR(out->read());
  out->thread_ = std::thread([voting = out.get()] { voting->run(); });
  return out;
}

Voting::~Voting() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Status Voting::read() {
  std::vector<Voter::Record> records;
  if (!options_.file.empty()) {
    SR_ASSIGN_OR_RETURN(lock_, sys::posix::FileLock::take(options_.file + ".lock"));
    const Result<std::string> text = sys::read_file(disk_.get(), options_.file, kFileBytesMax);
    if (text.ok()) {
      SR_ASSIGN_OR_RETURN(records, from_text(*text, options_.file));
    } else if (text.status().code() != StatusCode::kNotFound) {
      return text.status();
    }
    // That it can be written is known before it must be.
    SR_RETURN_IF_ERROR(write(records));
  }
  voter_ = std::make_unique<Voter>(2 * options_.lease_ns, clock_->now(), std::move(records));
  return {};
}

Status Voting::write(const std::vector<Voter::Record>& records) {
  return sys::write_file_at_once(disk_.get(), options_.file, to_text(records), ++writes_);
}

Result<Vote> Voting::vote(const Ask& ask) {
  const std::lock_guard lock(mutex_);
  SR_ASSIGN_OR_RETURN(Vote vote, voter_->vote(ask, clock_->now()));
  must_write_ |= voter_->take_records_changed() && !options_.file.empty();
  if (must_write_) {
    SR_RETURN_IF_ERROR(write(voter_->records()));
    must_write_ = false;
  }
  return vote;
}

/// Tells of those that are silent.
void Voting::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [this] { return stops_; })) {
    for (const Voter::Silent& one : voter_->take_silent(clock_->now())) {
      base::emit(options_.source, base::Event::kLeaseLapsed,
                 {{"task", one.task},
                  {"start", fmt::format("{:016x}", one.life)},
                  {"seconds", 2e-9 * static_cast<double>(options_.lease_ns)}});
    }
  }
}

}  // namespace sidereal::service
