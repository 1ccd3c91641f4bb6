#include "sidereal/master/lost_tasks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sidereal::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LostTasksTest : public ::testing::Test {
 protected:
  LostTasksTest() {
    sink_ = std::make_unique<base::EventSinkRegistration>(
        [this](std::string_view line) { told_.emplace_back(line); });
  }

  void lose(uint64_t incarnation, uint64_t session = 1) {
    lost_.note_lost("/job:ps/task:0", incarnation, session, base::unavailable("gone"));
  }
  void attach(uint64_t incarnation) { lost_.note_attached("/job:ps/task:0", incarnation); }

  std::vector<std::string> told_;
  LostTasks lost_{{.task = "m", .incarnation = 0, .logs = false}};
  std::unique_ptr<base::EventSinkRegistration> sink_;
};

TEST_F(LostTasksTest, tell_of_a_loss_once_for_all_sessions) {
  attach(7);
  attach(7);
  lose(7, 0xa);
  lose(7, 0xb);
  attach(8);
  attach(8);
  lose(7, 0xc);  // A session that notices late.
  EXPECT_THAT(
      told_, ElementsAre(
                 HasSubstr(R"("event":"task_lost","fields":{"task":"/job:ps/task:0",)"
                           R"("session":"000000000000000a","why":"gone")"),
                 AllOf(HasSubstr(R"("event":"task_found")"), HasSubstr(R"("is_restarted":true)"))));
  told_.clear();
  lose(8);
  attach(8);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("task_lost"), HasSubstr(R"("is_restarted":false)")));
}

TEST_F(LostTasksTest, do_not_fill_memory_with_names) {
  for (int i = 0; i < 10'000; ++i) lost_.note_attached(fmt::format("t{}", i), 1);
  lost_.note_lost("t1", 1, 1, base::unavailable("gone"));
  lost_.note_lost("t9999", 1, 1, base::unavailable("gone"));
  EXPECT_THAT(told_, ElementsAre(HasSubstr(R"("task":"t1")")));
}

}  // namespace
}  // namespace sidereal::master
