#include "sidereal/service/job_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <iterator>
#include <utility>

#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/service/job_lease.h"
#include "sidereal/service/session.grpc.pb.h"

/// Commands to jobs that run: how they come to the holder of a lease, and what becomes of them back
/// to the caller.
namespace sidereal::app {
namespace {

namespace v1 = session::v1;
using service::CommandOptions;
using service::JobCommand;
using service::JobCommands;
using service::JobLease;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr JobCommand kScale = {.kind = JobCommand::Kind::kScale, .ps = 3};
constexpr JobCommand kDrain = {.kind = JobCommand::Kind::kDrain, .ps = 1};
constexpr double kLongS = 60;

cluster::ClusterSpec cluster_of(const std::vector<std::string>& addresses) {
  cluster::ClusterSpec spec;
  EXPECT_TRUE(spec.add_job("w", addresses).ok());
  return spec;
}

std::unique_ptr<JobLease> lease_of(const cluster::ClusterSpec& spec, const std::string& name,
                                   bool take_over = false) {
  auto lease =
      JobLease::create(spec, {.name = name, .take_over = take_over, .user = "alice"}, patient());
  EXPECT_TRUE(lease.ok()) << lease.status();
  return lease.ok() ? *std::move(lease) : nullptr;
}

/// Waits until the holder hears of one.
std::optional<JobCommand> heard_by(JobCommands* commands) {
  std::optional<JobCommand> command;
  EXPECT_TRUE(eventually(
      [&] {
        command = commands->next();
        return command.has_value();
      },
      kLongS));
  return command;
}

/// Gives a command, once the job hears of them.
Result<std::string> tell(const cluster::ClusterSpec& spec, const JobCommand& command,
                         const CommandOptions& options = {}) {
  Result<std::string> ended = std::string();
  EXPECT_TRUE(eventually(
      [&] {
        ended = service::command_job(spec, {}, command, options);
        return base::message_of(ended.status()).find("takes no commands") == std::string::npos;
      },
      kLongS));
  return ended;
}

std::future<Result<std::string>> telling(const cluster::ClusterSpec& spec,
                                         const JobCommand& command,
                                         const CommandOptions& options = {}) {
  return std::async(std::launch::async,
                    [spec, command, options] { return tell(spec, command, options); });
}

class JobCommandsTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<v1::Master::Stub> stub() const {
    return v1::Master::NewStub(
        grpc::CreateChannel(cluster_.target(0).substr(7), grpc::InsecureChannelCredentials()));
  }

  TestCluster cluster_{2};
  const cluster::ClusterSpec spec_ = cluster_.options().cluster;
};

TEST_F(JobCommandsTest, come_to_the_holder_and_their_ends_to_the_caller) {
  const auto lease = lease_of(spec_, "a");
  JobCommands* const commands = lease->commands();
  EXPECT_EQ(lease->commands(), commands);
  std::atomic<int64_t> copied = 0;
  const CommandOptions options = {.on_progress = [&](const service::JobCommandProgress& progress) {
    EXPECT_EQ(progress.bytes_all, 100);
    copied = progress.bytes;
  }};
  auto scaled = telling(spec_, kScale, options);
  const auto scale = heard_by(commands);
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->kind, JobCommand::Kind::kScale);
  EXPECT_EQ(scale->ps, 3);
  EXPECT_FALSE(commands->next().has_value());
  for (int64_t bytes = 1; bytes <= 50; ++bytes) commands->tell({.bytes = bytes, .bytes_all = 100});
  EXPECT_TRUE(eventually([&] { return copied == 50; }, kLongS)) << copied;
  EXPECT_FALSE(commands->is_cancelled());
  commands->end({}, "3 tables are on 3 ps");
  const Result<std::string> text = scaled.get();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "3 tables are on 3 ps");

  auto drained = telling(spec_, kDrain, {.job = "a"});
  const auto drain = heard_by(commands);
  ASSERT_TRUE(drain.has_value());
  EXPECT_EQ(service::to_string(*drain), "drain ps:1");
  commands->end(base::resource_exhausted("ps:0 has no memory for that"), "");
  const Status refused = drained.get().status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(base::message_of(refused), "ps:0 has no memory for that");
}

TEST_F(JobCommandsTest, are_carried_out_one_at_a_time) {
  const auto lease = lease_of(spec_, "a");
  JobCommands* const commands = lease->commands();
  auto first = telling(spec_, kScale);
  ASSERT_TRUE(heard_by(commands).has_value());
  const Status second = service::command_job(spec_, {}, kDrain).status();
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition) << second;
  EXPECT_THAT(base::message_of(second), HasSubstr("the job 'a' is carrying out 'scale --ps 3'"));
  commands->end({}, "done");
  EXPECT_TRUE(first.get().ok());
}

TEST_F(JobCommandsTest, that_are_cancelled_end_when_the_holder_says_so) {
  const auto lease = lease_of(spec_, "a");
  JobCommands* const commands = lease->commands();
  std::atomic<bool> cancel = false;
  const CommandOptions options = {.is_cancelled = [&] { return cancel.load(); }};
  auto first = telling(spec_, kScale, options);
  ASSERT_TRUE(heard_by(commands).has_value());
  EXPECT_FALSE(commands->is_cancelled());
  cancel = true;
  EXPECT_TRUE(eventually([&] { return commands->is_cancelled(); }, kLongS));
  const Status meanwhile = service::command_job(spec_, {}, kDrain).status();
  EXPECT_THAT(base::message_of(meanwhile), HasSubstr("takes back 'scale --ps 3'"));
  commands->end(base::cancelled("as was wanted"), "");
  const Status told = first.get().status();
  EXPECT_EQ(told.code(), StatusCode::kCancelled) << told;
  EXPECT_THAT(base::message_of(told), HasSubstr("nothing has changed"));
  // Too late: it is done, and said to be.
  cancel = false;
  auto late = telling(spec_, kScale, options);
  ASSERT_TRUE(heard_by(commands).has_value());
  EXPECT_FALSE(commands->is_cancelled());
  cancel = true;
  EXPECT_TRUE(eventually([&] { return commands->is_cancelled(); }, kLongS));
  commands->end({}, "done");
  EXPECT_TRUE(late.get().ok());
}

TEST_F(JobCommandsTest, that_the_holder_has_not_looked_at_are_cancelled_at_once) {
  const auto lease = lease_of(spec_, "a");
  JobCommands* const commands = lease->commands();
  const CommandOptions options = {.is_cancelled = [] { return true; }};
  const Status told = tell(spec_, kScale, options).status();
  EXPECT_EQ(told.code(), StatusCode::kCancelled) << told;
  EXPECT_FALSE(commands->next().has_value());
  auto next = telling(spec_, kDrain);
  const auto drain = heard_by(commands);
  ASSERT_TRUE(drain.has_value());
  EXPECT_EQ(service::to_string(*drain), "drain ps:1");
  EXPECT_FALSE(commands->is_cancelled());
  commands->end({}, "done");
  EXPECT_TRUE(next.get().ok());
}

TEST_F(JobCommandsTest, are_not_taken_any_more_when_the_job_says_so) {
  const auto lease = lease_of(spec_, "a");
  auto left = telling(spec_, kScale);
  ASSERT_TRUE(heard_by(lease->commands()).has_value());
  lease->hear_no_commands();
  EXPECT_EQ(left.get().status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(service::command_job(spec_, {}, kScale).status()),
              HasSubstr("takes no commands"));
  auto again = telling(spec_, kScale);
  ASSERT_TRUE(heard_by(lease->commands()).has_value());
  lease->commands()->tell({.bytes = 1, .bytes_all = 1});
  lease->commands()->end({}, "done");
  // What was said before is still heard.
  lease->hear_no_commands();
  const Result<std::string> ended = again.get();
  EXPECT_TRUE(ended.ok()) << ended.status();
}

TEST_F(JobCommandsTest, are_cancelled_when_the_caller_hangs_up) {
  const auto lease = lease_of(spec_, "a");
  JobCommands* const commands = lease->commands();
  auto warm = telling(spec_, kDrain);
  ASSERT_TRUE(heard_by(commands).has_value());
  commands->end({}, "done");
  ASSERT_TRUE(warm.get().ok());
  const auto stub = this->stub();
  grpc::ClientContext context;
  const auto call = stub->CommandJob(&context);
  v1::CommandJobRequest request;
  request.set_version(service::kSessionVersion);
  request.mutable_command()->set_kind(3);
  ASSERT_TRUE(call->Write(request));
  const auto command = heard_by(commands);
  ASSERT_TRUE(command.has_value());
  EXPECT_EQ(command->kind, JobCommand::Kind::kRebalance);
  context.TryCancel();
  EXPECT_TRUE(eventually([&] { return commands->is_cancelled(); }, kLongS));
  commands->end(base::cancelled("taken back"), "");
  auto next = telling(spec_, kScale);
  ASSERT_TRUE(heard_by(commands).has_value());
  EXPECT_FALSE(commands->is_cancelled());
  commands->end({}, "done");
  EXPECT_TRUE(next.get().ok());
  EXPECT_FALSE(call->Finish().ok());
}

TEST_F(JobCommandsTest, end_with_the_lease_of_the_job) {
  auto lease = lease_of(spec_, "a");
  auto left = telling(spec_, kScale);
  ASSERT_TRUE(heard_by(lease->commands()).has_value());
  lease = nullptr;
  const Status gone = left.get().status();
  // Its stream or its session is seen to end first.
  EXPECT_THAT(gone.code(), ::testing::AnyOf(StatusCode::kAborted, StatusCode::kUnavailable))
      << gone;
  EXPECT_THAT(base::message_of(gone), HasSubstr("the job 'a'"));

  lease = lease_of(spec_, "b");
  auto taken = telling(spec_, kScale);
  JobCommands* const commands = lease->commands();
  ASSERT_TRUE(heard_by(commands).has_value());
  const auto other = lease_of(spec_, "b", /*take_over=*/true);
  const Status told = taken.get().status();
  EXPECT_EQ(told.code(), StatusCode::kAborted) << told;
  EXPECT_THAT(base::message_of(told), HasSubstr("the job 'b' has ended, and 'scale --ps 3' with"));
  EXPECT_TRUE(eventually([&] { return commands->is_cancelled(); }, kLongS));
  commands->end({}, "nobody hears of this");
  EXPECT_FALSE(commands->next().has_value());
}

TEST_F(JobCommandsTest, are_heard_of_again_when_their_stream_was_lost) {
  const auto lease = lease_of(spec_, "a");
  JobCommands* const commands = lease->commands();
  auto first = telling(spec_, kScale);
  ASSERT_TRUE(heard_by(commands).has_value());
  // Another stream takes the place of the holder's.
  const auto stub = this->stub();
  grpc::ClientContext context;
  const auto call = stub->HearCommands(&context);
  v1::HearCommandsRequest request;
  request.set_lease(lease->number());
  ASSERT_TRUE(call->Write(request));
  v1::HearCommandsReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_EQ(first.get().status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(eventually([&] { return commands->is_cancelled(); }, kLongS));
  commands->end(base::cancelled("taken back"), "");
  // The holder's next one takes the place of that.
  auto second = telling(spec_, kDrain, {.job = "a"});
  EXPECT_TRUE(eventually(
      [&] {
        if (commands->next()) return true;
        // What came to the other stream ends with that.
        if (second.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready) {
          EXPECT_EQ(second.get().status().code(), StatusCode::kUnavailable);
          second = telling(spec_, kDrain, {.job = "a"});
        }
        return false;
      },
      kLongS));
  commands->end({}, "done");
  EXPECT_TRUE(second.get().ok());
  while (call->Read(&reply)) {
  }
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(JobCommandsTest, need_a_job_that_takes_them) {
  const auto refused = [&](const std::string& job) {
    return service::command_job(spec_, {}, kScale, {.job = job}).status();
  };
  EXPECT_EQ(refused("").code(), StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(refused("x")), HasSubstr("no job runs on this cluster"));
  const auto a = lease_of(spec_, "a");
  EXPECT_THAT(base::message_of(refused("x")), HasSubstr("no job 'x' runs; these do: 'a'"));
  for (const char* const name : {"", "a"}) {
    const Status told = refused(name);
    EXPECT_EQ(told.code(), StatusCode::kFailedPrecondition) << told;
    EXPECT_THAT(base::message_of(told),
                AllOf(HasSubstr("the job 'a' of alice on host "),
                      HasSubstr("takes no commands: fit() and `sidereal train` do while")));
  }
  const auto b = lease_of(spec_, "b");
  EXPECT_EQ(refused("").code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(refused("")), HasSubstr("several jobs run: 'a', 'b'; say which"));
  EXPECT_EQ(refused("b").code(), StatusCode::kFailedPrecondition);
}

TEST_F(JobCommandsTest, are_checked_wherever_they_come_from) {
  for (const JobCommand& command : {JobCommand{.kind = JobCommand::Kind::kScale, .ps = 0},
                                    JobCommand{.kind = JobCommand::Kind::kDrain, .ps = -1}}) {
    EXPECT_EQ(service::command_job(spec_, {}, command).status().code(),
              StatusCode::kInvalidArgument);
  }
  const auto stub = this->stub();
  const auto code = [&](const std::vector<v1::CommandJobRequest>& requests) {
    grpc::ClientContext context;
    const auto call = stub->CommandJob(&context);
    for (const auto& request : requests) call->Write(request);
    call->WritesDone();
    v1::CommandJobReply reply;
    while (call->Read(&reply)) {
    }
    return call->Finish().error_code();
  };
  v1::CommandJobRequest request;
  EXPECT_EQ(code({}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code({request}), grpc::StatusCode::FAILED_PRECONDITION);
  request.set_version(service::kSessionVersion);
  for (const int kind : {-1, 0, 4}) {
    request.mutable_command()->set_kind(kind);
    EXPECT_EQ(code({request}), grpc::StatusCode::INVALID_ARGUMENT);
  }
  request.mutable_command()->set_kind(1);
  EXPECT_EQ(code({request}), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_command()->set_ps(2);
  EXPECT_EQ(code({request}), grpc::StatusCode::OK);

  const auto hears = [&](uint64_t lease) {
    grpc::ClientContext context;
    const auto call = stub->HearCommands(&context);
    v1::HearCommandsRequest first;
    first.set_lease(lease);
    call->Write(first);
    v1::HearCommandsReply reply;
    while (call->Read(&reply)) {
    }
    return call->Finish().error_code();
  };
  EXPECT_EQ(hears(0), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(hears(7), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(JobCommandsTest, hear_what_is_said_of_them_and_not_of_others) {
  const auto lease = lease_of(spec_, "a");
  const auto stub = this->stub();
  grpc::ClientContext context;
  const auto call = stub->HearCommands(&context);
  v1::HearCommandsRequest request;
  request.set_lease(lease->number());
  ASSERT_TRUE(call->Write(request));
  v1::HearCommandsReply reply;
  ASSERT_TRUE(call->Read(&reply));
  std::atomic<int64_t> copied = -1;
  auto told =
      telling(spec_, kScale,
              {.on_progress = [&](const service::JobCommandProgress& p) { copied = p.bytes; }});
  ASSERT_TRUE(call->Read(&reply));
  request.Clear();
  for (const uint64_t number : {uint64_t{0}, reply.number() + 1}) {
    request.set_number(number);
    request.mutable_end()->set_text("another one");
    ASSERT_TRUE(call->Write(request));
  }
  request.Clear();
  request.set_number(reply.number());
  request.mutable_progress()->set_bytes(-7);
  ASSERT_TRUE(call->Write(request));
  EXPECT_TRUE(eventually([&] { return copied == 0; }, kLongS));
  request.mutable_end()->set_text("a \x1b[1m line");
  ASSERT_TRUE(call->Write(request));
  const Result<std::string> text = told.get();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "a \\x1b[1m line");
  context.TryCancel();
  EXPECT_FALSE(call->Finish().ok());
}

TEST(JobCommands, end_with_the_server_that_passes_them_on) {
  if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
  ProcessCluster servers(1);
  const cluster::ClusterSpec spec = cluster_of({servers.address(0)});
  const auto lease = lease_of(spec, "a");
  JobCommands* const commands = lease->commands();
  auto told = telling(spec, kScale);
  ASSERT_TRUE(heard_by(commands).has_value());
  servers.kill(0);
  const Status lost = told.get().status();
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable) << lost;
  EXPECT_THAT(base::message_of(lost), HasSubstr("/job:w/replica:0/task:0 at " + servers.address()));
  EXPECT_TRUE(eventually([&] { return commands->is_cancelled(); }, kLongS));
  commands->end(base::cancelled("taken back"), "");
  EXPECT_FALSE(commands->next().has_value());
}

/// `sidereal`, whose words are in a file.
class CommandLine {
 public:
  explicit CommandLine(const std::string& arguments)
      : process_({"/bin/sh", "-c",
                  "exec " + server_program() + " " + arguments + " >" + file_ + " 2>&1"}) {}
  ~CommandLine() { std::remove(file_.c_str()); }
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void interrupt() const { process_.signal(SIGINT); }
  int wait() { return process_.wait(); }
  [[nodiscard]] std::string said() const {
    std::ifstream file(file_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::string file_ = ::testing::TempDir() + "said_" + std::to_string(getpid());
  ChildProcess process_;
};

TEST(JobCommands, are_given_on_the_command_line) {
  if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
  ProcessCluster servers(1);
  const cluster::ClusterSpec spec = cluster_of({servers.address(0)});
  const std::string there = " --timeout 60 --target " + servers.target();
  {
    CommandLine nobody("rebalance" + there);
    EXPECT_EQ(nobody.wait(), 1);
    EXPECT_THAT(nobody.said(), HasSubstr("NOT_FOUND: no job runs on this cluster"));
  }
  const auto lease = lease_of(spec, "ads");
  JobCommands* const commands = lease->commands();
  // From here on it hears of them.
  auto first = telling(spec, kDrain);
  ASSERT_TRUE(heard_by(commands).has_value());
  commands->end({}, "done");
  ASSERT_TRUE(first.get().ok());

  CommandLine scale("scale --ps 3 --job ads" + there);
  const auto command = heard_by(commands);
  ASSERT_TRUE(command.has_value());
  EXPECT_EQ(service::to_string(*command), "scale --ps 3");
  commands->tell({.bytes = 512 << 20, .bytes_all = 1 << 30});
  EXPECT_TRUE(eventually(
      [&] { return scale.said().find("512 MiB of 1.0 GiB") != std::string::npos; }, kLongS));
  commands->end({}, "3 tables are on 3 ps");
  EXPECT_EQ(scale.wait(), 0);
  EXPECT_THAT(scale.said(), HasSubstr("\n3 tables are on 3 ps\n"));

  CommandLine drain("drain /job:ps/task:2" + there);
  ASSERT_TRUE(heard_by(commands).has_value());
  drain.interrupt();
  EXPECT_TRUE(eventually([&] { return commands->is_cancelled(); }, kLongS));
  commands->end(base::cancelled("as was wanted"), "");
  EXPECT_EQ(drain.wait(), 130);
  EXPECT_THAT(drain.said(), HasSubstr("CANCELLED: it was cancelled: nothing has changed"));
}

TEST(JobCommands, are_written_as_they_are_typed) {
  EXPECT_EQ(service::to_string(kScale), "scale --ps 3");
  EXPECT_EQ(service::to_string(kDrain), "drain ps:1");
  EXPECT_EQ(service::to_string(JobCommand{}), "rebalance");
}

}  // namespace
}  // namespace sidereal::app
