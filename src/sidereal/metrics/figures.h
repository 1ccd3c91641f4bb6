#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/metrics/histogram.h"

/// Figures: numbers about a running server. Each is declared in one row, beside what counts it, and
/// travels by its name from there on.
namespace sidereal::metrics {

enum class Kind : uint8_t {
  kCounter,    ///< Only grows; its name ends in "_total".
  kGauge,      ///< What is so now.
  kHistogram,  ///< How often values of each size were seen.
};
/// What a value is a number of.
enum class Unit : uint8_t {
  kCount,    ///< Whatever the name says.
  kBytes,    ///< The name has "_bytes".
  kSeconds,  ///< Held as nanoseconds; the name has "_seconds".
  kRatio,    ///< 0 to 1, held as billionths; the name has "_ratio".
};
const char* name_of(Kind kind);
const char* name_of(Unit unit);

/// Tells figures apart that share a name, such as why="garbage".
struct Label {
  std::string name;
  std::string value;
};

/// The row that says what a figure is.
struct Declaration {
  std::string name;  ///< In Prometheus' style: "sidereal_task_steps_total".
  Kind kind = Kind::kCounter;
  Unit unit = Unit::kCount;
  std::string help;                ///< One line, the same for all figures of a name.
  std::vector<Label> labels = {};  ///< None where a name stands for one figure.
};
Declaration counter(std::string name, Unit unit, std::string help, std::vector<Label> labels = {});
Declaration gauge(std::string name, Unit unit, std::string help, std::vector<Label> labels = {});
Declaration histogram(std::string name, Unit unit, std::string help,
                      std::vector<Label> labels = {});

/// What tells a figure from all others, as Prometheus writes it: the name, and the labels if there
/// are any: `sidereal_refused_total{why="garbage"}`.
std::string series_of(const Declaration& what);

/// What is wrong with a row: a name that is not in Prometheus' style, or does not say kind and
/// unit; no help; "" when nothing is. For tests.
std::string wrong_with(const Declaration& what);

/// What a figure was at one moment. Value type.
struct Reading {
  Declaration what;
  int64_t value = 0;            ///< Counters and gauges, as their unit is held.
  HistogramSnapshot histogram;  ///< Histograms only.

  /// `value` in its unit.
  [[nodiscard]] double scaled() const;
};
/// Seconds of nanoseconds, ratios of billionths; others stay as they are.
double scaled(Unit unit, double value);

/// Readings by name. What is added under the same name and label is summed: so figures of all lanes
/// become those of their task. Value type.
class Readings {
 public:
  void add(const Declaration& what, int64_t value);
  void add(const Declaration& what, const HistogramSnapshot& histogram);

  /// By series_of().
  [[nodiscard]] const std::map<std::string, Reading, std::less<>>& all() const { return all_; }
  /// The sum of the counters or gauges of this name, whatever their labels; 0 without any.
  [[nodiscard]] int64_t value(std::string_view name) const;
  /// The value of a series; 0 where there is none.
  [[nodiscard]] int64_t series(std::string_view series) const;

 private:
  Reading& reading(const Declaration& what);
  std::map<std::string, Reading, std::less<>> all_;
};

/// The counters and histograms of one part of a server, which enter it when they are made, with the
/// row that declares them.
/// Lifecycle: what is in it lives as long as it does, and is made before anybody reads.
/// Thread:    any.
class Figures {
 public:
  Figures() = default;
  Figures(const Figures&) = delete;
  Figures& operator=(const Figures&) = delete;

  /// Adds what all of them are now.
  void read(Readings* into) const;

 private:
  friend class Counter;
  friend class Histogram;
  struct Entry {
    Declaration what;
    const Counter* counter = nullptr;
    const Histogram* histogram = nullptr;
  };
  std::vector<Entry> entries_;
};

}  // namespace sidereal::metrics
