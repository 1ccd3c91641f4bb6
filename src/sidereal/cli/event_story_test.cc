#include "sidereal/cli/event_story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sidereal/base/event_log.h"
#include "sidereal/cli/commands.h"

namespace sidereal::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string line(const std::string& ts, const std::string& task, int seq,
                 const std::string& fields = "{}") {
  return R"({"ts":")" + ts + R"(","task":")" + task + R"(","incarnation":"0","seq":)" +
         std::to_string(seq) + R"(,"event":"task_up","fields":)" + fields + "}";
}

std::vector<std::string> tasks_of(const std::vector<StoryEvent>& story) {
  std::vector<std::string> out;
  for (const StoryEvent& one : story) out.push_back(one.task + " " + std::to_string(one.number));
  return out;
}

TEST(EventStory, IsInOrderOfTimeInWhateverZones) {
  const std::vector<std::string> lines = {
      line("2026-01-31T12:00:02.000000+00:00", "b", 1),
      line("2026-01-31T13:00:01.000000+01:00", "a", 7),
      line("2026-01-31T06:30:01.500000-05:30", "c", 1),
      line("2026-01-31T12:00:01.000000+00:00", "a", 6),
      line("2026-01-31T12:00:02.000000+00:00", "b", 1),
  };
  const auto story = story_of(lines);
  EXPECT_THAT(tasks_of(story), ElementsAre("a 6", "a 7", "c 1", "b 1"));
  EXPECT_THAT(tasks_of(story_of(lines, story[2].time_us)), ElementsAre("c 1", "b 1"));
}

TEST(EventStory, LeavesOutWhatIsNone) {
  for (const std::string& bad :
       {std::string(), std::string("x"), std::string("[1]"), std::string("{}"), std::string("{"),
        line("2026-01-31", "a", 1), line("2026-01-31T12:00:02.000000+00:00x", "a", 1),
        std::string(R"({"ts":1,"event":2})"), std::string(size_t{1} << 20, '['),
        std::string(R"({"ts":"2026-01-31T12:00:02.000000+00:00","event":"\u001b"})")
            .substr(0, 50)}) {
    EXPECT_EQ(parse_event(bad).status().code(), StatusCode::kDataLoss) << bad.substr(0, 99);
  }
  EXPECT_THAT(story_of({"x", ""}), ElementsAre());
}

TEST(EventStory, HasLinesThatATerminalMayGet) {
  const auto event =
      parse_event(line("2026-01-31T12:00:02.123456+00:00", "/job:ps/replica:0/task:0\\u001b[2J", 1,
                       R"({"why":"two \u001b words","n":9,"flag":true,"o":{"a":["\n"]}})"));
  ASSERT_TRUE(event.ok()) << event.status();
  ASSERT_EQ(setenv("TZ", "UTC", 1), 0);
  tzset();
  EXPECT_EQ(format_event(*event),
            "2026-01-31 12:00:02.123 /job:ps/task:0\\x1b[2J task_up            "
            "why=\"two \\x1b words\" n=9 flag=true o=\"{\"a\":[\"\\n\"]}\"");
  // Whoever sends a line within a line.
  const auto split = parse_event("{\"ts\":\"2026-01-31T12:00:02.123456+00:00\",\n\"event\":\"é\"}");
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->line, R"({"ts":"2026-01-31T12:00:02.123456+00:00","event":"\u00e9"})");
}

TEST(EventStory, ReadsWhatTheEventLogWrites) {
  std::string bytes;
  for (int c = 0; c < 256; ++c) bytes += static_cast<char>(c);
  base::emit({.task = "t", .logs = false}, base::Event::kTaskDown, {{"why", bytes}, {"signal", 9}});
  const auto event = parse_event(base::recent_events(1).at(0));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->task, "t");
  EXPECT_EQ(event->event, "task_down");
  EXPECT_THAT(event->fields, HasSubstr(" signal=9"));
  EXPECT_EQ(event->fields.find('\n'), std::string::npos);
}

TEST(EventStory, IsReadFromFilesAndFolders) {
  std::string pattern = ::testing::TempDir() + "story-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  };
  EXPECT_EQ(read_event_log(folder).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_event_log(folder + "/x").status().code(), StatusCode::kNotFound);
  write("ps-0.events.jsonl", "a\nb\n");
  write("ps-0.events.jsonl.1", "c\n");
  write("ps-0.log", "d\n");
  const std::string alone = write("alone", "e\nhalf");
  EXPECT_THAT(*read_event_log(folder), ElementsAre("a", "b", "c"));
  EXPECT_THAT(*read_event_log(alone), ElementsAre("e", "half"));
  fs::remove_all(folder);
}

TEST(EventStory, KnowsAges) {
  EXPECT_EQ(*parse_age("90s"), 90);
  EXPECT_EQ(*parse_age("1.5h"), 5400);
  for (const char* bad : {"", "s", "5", "-1m", "nanm", "5 minutes"}) {
    EXPECT_EQ(parse_age(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

// After a change: SIDEREAL_BLESS=1 build/dev/tests/cli_test --gtest_filter='*InTheGuide'
TEST(Events, AreInTheGuide) {
  const char* const name = "docs/guide/operating.md";
  std::ostringstream read;
  read << std::ifstream(name).rdbuf();
  const std::string page = std::move(read).str();
  const std::string begin = "<!-- events:begin -->\n";
  const size_t at = page.find(begin);
  const size_t end = page.find("<!-- events:end -->");
  ASSERT_TRUE(at != page.npos && end != page.npos) << name;
  std::string table = "\n| event | fields | |\n|---|---|---|\n";
  for (const base::EventKind& kind : base::event_kinds()) {
    table += std::string("| `") + kind.name + "` | " + kind.fields + " | " + kind.meaning + " |\n";
  }
  const std::string expected = page.substr(0, at) + begin + table + "\n" + page.substr(end);
  if (std::getenv("SIDEREAL_BLESS") != nullptr) {
    std::ofstream(name) << expected;
    return;
  }
  EXPECT_EQ(page, expected) << name << " is out of date; SIDEREAL_BLESS=1 writes it";
}

TEST(Events, AreAllInTheHelp) {
  const std::string help = parse({"events", "--help"}).out;
  for (const base::EventKind& kind : base::event_kinds()) EXPECT_THAT(help, HasSubstr(kind.name));
}

}  // namespace
}  // namespace sidereal::cli
