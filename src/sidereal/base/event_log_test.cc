#include "sidereal/base/event_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

namespace sidereal::base {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

const EventSource kTask = {.task = "/job:ps/replica:0/task:1", .incarnation = 0x12, .logs = false};

std::string last() { return recent_events(1).at(0); }

TEST(EventLog, HasOneLineOfJsonForAnEvent) {
  emit(kTask, Event::kTaskDown,
       {{"task", "a"}, {"signal", 9}, {"silent_s", 1.5}, {"is_exact", true}});
  EXPECT_THAT(last(), MatchesRegex(R"(\{"ts":"[0-9-]+T[0-9:.]+[+-][0-9:]+",.*)"));
  EXPECT_THAT(
      last(),
      HasSubstr(R"("task":"/job:ps/replica:0/task:1","incarnation":"0000000000000012","seq":)"));
  EXPECT_THAT(last(), EndsWith(R"("event":"task_down","fields":{"task":"a","signal":9,)"
                               R"("silent_s":1.5,"is_exact":true}})"));
}

TEST(EventLog, WritesWhateverAValueIsAsOneLine) {
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  emit({.task = "a\"\n\xff", .logs = false}, Event::kTaskDown,
       {{"why", every},
        {"a\"\nb", "\"},\"event\":\"task_up\""},
        {"long", std::string(size_t{1} << 20, '\n')},
        {"nan", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(last().find('\n'), std::string::npos);
  EXPECT_LT(last().size(), 16'384u);
  EXPECT_TRUE(std::ranges::all_of(last(), [](char c) { return c >= 0x20; }));
  EXPECT_THAT(last(), HasSubstr(R"("task":"a\"\u000a\\xff")"));
  EXPECT_THAT(last(), HasSubstr(R"("nan":null)"));
}

TEST(EventLog, KeepsTheLatestOfAProcess) {
  for (size_t i = 0; i < kEventsKept + 10; ++i) emit(kTask, Event::kTaskUp, {{"i", i}});
  const std::vector<std::string> kept = recent_events(std::numeric_limits<size_t>::max());
  ASSERT_EQ(kept.size(), kEventsKept);
  EXPECT_THAT(kept.front(), HasSubstr(R"({"i":10})"));
  EXPECT_THAT(kept.back(), HasSubstr(fmt::format(R"({{"i":{}}})", kEventsKept + 9)));
  EXPECT_THAT(recent_events(0), ElementsAre());
}

TEST(EventLog, TellsSinksAsLongAsTheyAreThere) {
  std::vector<std::string> told;
  {
    const EventSinkRegistration sink([&](std::string_view line) { told.emplace_back(line); });
    emit(kTask, Event::kTaskUp, {});
  }
  emit(kTask, Event::kTaskUp, {});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], EndsWith("\"fields\":{}}\n"));
}

TEST(EventLog, HasTheLineOfTheLogFromTheSameCall) {
  EventSource source = kTask;
  source.logs = true;
  const auto said = [&](const EventFields& fields, const std::string& text = "") {
    ::testing::internal::CaptureStderr();
    emit(source, Event::kSessionEnded, fields, text);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said({{"session", "ab"}, {"why", "no client"}, {"seconds", 0.25}}),
              EndsWith(" session ended session=ab why=\"no client\" seconds=0.25\n"));
  EXPECT_THAT(said({{"session", "ab"}}, "as it was"), EndsWith(" as it was\n"));
  source.logs = false;
  EXPECT_EQ(said({{"session", "ab"}}), "");
}

TEST(EventKinds, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const EventKind& kind : event_kinds()) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_THAT(kind.name, MatchesRegex("[a-z_]+"));
    EXPECT_THAT(kind.meaning, EndsWith(".")) << kind.name;
    EXPECT_EQ(find_event(kind.name), &kind);
  }
  EXPECT_EQ(find_event("task"), nullptr);
  EXPECT_THAT(event_kinds().front().name, StartsWith("task_up"));
}

}  // namespace
}  // namespace sidereal::base
