#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sidereal/app/testing/model.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/service/figures_message.h"
#include "sidereal/service/session.pb.h"

namespace sidereal::app {
namespace {

using metrics::Kind;
using metrics::Readings;
using metrics::Unit;

constexpr const char* kPage = "docs/guide/metrics.md";
constexpr std::string_view kBegin = "<!-- metrics:begin -->\n";
constexpr std::string_view kEnd = "<!-- metrics:end -->";

/// A server that has all parts.
std::unique_ptr<Server> whole_server() {
  ServerOptions options;
  EXPECT_TRUE(options.cluster.add_job("w", std::vector<std::string>{"127.0.0.1:0"}).ok());
  options.job = "w";
  options.protocol = cluster::Protocol::kStarServerLite;
  options.lanes = 2;
  options.metrics_port = 0;
  auto server = Server::create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

/// The rows of all figures as the guide has them, a line for each name.
std::string table_of(const Readings& readings) {
  std::string out = "| name | kind | unit | help |\n|---|---|---|---|\n";
  std::string last;
  for (const auto& [series, reading] : readings.all()) {
    const metrics::Declaration& what = reading.what;
    if (what.name == last) continue;
    last = what.name;
    std::string name;
    for (const metrics::Label& label : what.labels) name += (name.empty() ? "" : ", ") + label.name;
    name = what.labels.empty() ? what.name : what.name + "{" + name + "}";
    out += fmt::format("| `{}` | {} | {} | {} |\n", name, name_of(what.kind), name_of(what.unit),
                       what.help);
  }
  return out;
}

std::string read_page() {
  std::ostringstream text;
  text << std::ifstream(kPage).rdbuf();
  return std::move(text).str();
}

TEST(FiguresOfAServer, have_names_that_say_what_they_are) {
  const auto server = whole_server();
  const Readings all = server->figures();
  EXPECT_GT(all.all().size(), 50u);
  std::map<std::string, std::string> helps;
  for (const auto& [series, reading] : all.all()) {
    const metrics::Declaration& what = reading.what;
    EXPECT_EQ(metrics::wrong_with(what), "") << series;
    EXPECT_EQ(helps.try_emplace(what.name, what.help).first->second, what.help) << series;
  }
}

// After a change: SIDEREAL_BLESS=1 build/dev/tests/runtime_test --gtest_filter='*InTheGuide'
TEST(FiguresOfAServer, AreInTheGuide) {
  const std::string page = read_page();
  const size_t begin = page.find(kBegin);
  const size_t end = page.find(kEnd);
  ASSERT_TRUE(begin != page.npos && end != page.npos) << kPage;
  const std::string expected = page.substr(0, begin) + std::string(kBegin) +
                               table_of(whole_server()->figures()) + page.substr(end);
  if (std::getenv("SIDEREAL_BLESS") != nullptr) {
    std::ofstream(kPage) << expected;
    return;
  }
  EXPECT_EQ(page, expected) << kPage << " is out of date; SIDEREAL_BLESS=1 writes it";
}

TEST(FiguresOfAServer, count_what_sessions_do) {
  const auto server = whole_server();
  Model model;
  model.constant({1}, "a");
  auto session = service::Session::create(server->target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*session)->run({}, {"a"}).ok());
  const Readings now = server->figures();
  EXPECT_EQ(now.value("sidereal_task_steps_total"), 3);
  EXPECT_EQ(now.value("sidereal_task_sessions"), 1);
  EXPECT_GT(now.value("sidereal_lane_iterations_total"), 0);
  EXPECT_EQ(now.value("sidereal_refused_total"), 0);
}

TEST(FiguresInMessages, arrive_as_they_were) {
  metrics::LaneMetrics lane;
  lane.calls.add(5);
  lane.refused_idle.add(2);
  lane.connections.set(3);
  for (const int64_t ns : {10, 2000, 2000, 7'000'000}) lane.call_ns.record(ns);
  Readings sent;
  lane.figures.read(&sent);
  session::v1::TaskStatus message;
  service::write_figures(sent, &message);
  const Readings got = service::figures_of(message);
  ASSERT_EQ(got.all().size(), sent.all().size());
  for (const auto& [series, reading] : sent.all()) {
    const metrics::Reading& other = got.all().at(series);
    EXPECT_EQ(other.value, reading.value) << series;
    EXPECT_EQ(other.what.kind, reading.what.kind) << series;
    EXPECT_EQ(other.what.unit, reading.what.unit) << series;
    EXPECT_EQ(other.histogram.count, reading.histogram.count) << series;
    EXPECT_EQ(other.histogram.sum, reading.histogram.sum) << series;
    EXPECT_EQ(other.histogram.quantile(0.5), reading.histogram.quantile(0.5)) << series;
    EXPECT_EQ(other.histogram.max, reading.histogram.max) << series;
  }
}

TEST(FiguresInMessages, that_lie_are_left_out) {
  session::v1::TaskStatus message;
  const auto add = [&](int kind, int unit, std::vector<int> buckets, std::vector<int64_t> counts) {
    session::v1::Figure* const figure = message.add_figures();
    figure->set_name("x" + std::to_string(message.figures_size()));
    figure->set_kind(kind);
    figure->set_unit(unit);
    for (const int bucket : buckets) figure->add_buckets(bucket);
    for (const int64_t count : counts) figure->add_counts(count);
  };
  add(3, 0, {}, {});
  add(-1, 0, {}, {});
  add(0, 4, {}, {});
  add(0, -1, {}, {});
  add(2, 2, {256}, {1});
  add(2, 2, {-1}, {1});
  add(2, 2, {1, 2}, {1});
  add(2, 2, {1}, {-1});
  add(2, 2, {1, 2}, {INT64_MAX, INT64_MAX});
  EXPECT_TRUE(service::figures_of(message).all().empty());
  add(2, 2, {1, 2}, {1, 1});
  *message.add_figures() = message.figures(message.figures_size() - 1);
  const Readings got = service::figures_of(message);
  ASSERT_EQ(got.all().size(), 1u);
  EXPECT_EQ(got.all().begin()->second.histogram.count, 2);
}

TEST(Server, says_where_prometheus_asks) {
  const auto server = whole_server();
  EXPECT_THAT(server->metrics_address(), ::testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ(Server::create_local().value()->metrics_address(), "");
}

}  // namespace
}  // namespace sidereal::app
