#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/data/auc.h"
#include "sidereal/data/random.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/synthetic.h"

// One iteration reads the whole file (or stream) once; items are rows.

namespace sidereal::data {
namespace {

constexpr int kRows = 200'000;

// A file of generated rows, removed at the end.
class BenchFile {
 public:
  explicit BenchFile(const std::string& text) {
    const int fd = mkstemp(path_.data());
    if (fd >= 0) std::ofstream(path_, std::ios::binary) << text;
  }
  ~BenchFile() { std::remove(path_.c_str()); }
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/sidereal_bench_XXXXXX";
};

void read_file(benchmark::State& state, const DataSpec& spec) {
  int64_t rows = 0;
  int64_t bytes = 0;
  for (auto _ : state) {
    auto reader = Reader::open(spec, {});
    Batch batch;
    while (*(*reader)->next(&batch)) benchmark::DoNotOptimize(batch.ids.raw());
    rows += (*reader)->stats().rows_read;
    bytes += (*reader)->stats().bytes_read;
  }
  state.SetItemsProcessed(rows);
  state.SetBytesProcessed(bytes);
}

std::string criteo_text() {
  Random random(1);
  std::string text;
  for (int r = 0; r < kRows; ++r) {
    text += r % 4 == 0 ? '1' : '0';
    for (int i = 0; i < 13; ++i) {
      text += random.below(5) == 0 ? std::string("\t") : fmt::format("\t{}", random.below(500));
    }
    for (int i = 0; i < 26; ++i) {
      text +=
          random.below(10) == 0 ? std::string("\t") : fmt::format("\t{:08x}", random.next() >> 32);
    }
    text += '\n';
  }
  return text;
}

std::string csv_text() {
  Random random(1);
  std::string text =
      "label,user,item,daytime,weekday,isweekend,homework,cost,weather,country,city\n";
  for (int r = 0; r < kRows; ++r) {
    text += r % 3 == 0 ? '1' : '0';
    for (int i = 0; i < 10; ++i) text += fmt::format(",{}", random.below(5382));
    text += "\r\n";
  }
  return text;
}

void BM_Criteo(benchmark::State& state) {
  const BenchFile file(criteo_text());
  DataSpec spec;
  spec.format = Format::kCriteo;
  spec.files = {file.path()};
  spec.shuffle_rows = state.range(0);
  read_file(state, spec);
}
BENCHMARK(BM_Criteo)->Arg(0)->Arg(20000)->Unit(benchmark::kMillisecond);

void BM_CsvSharedIds(benchmark::State& state) {
  const BenchFile file(csv_text());
  DataSpec spec;
  spec.files = {file.path()};
  spec.id_space = 5382;
  spec.shuffle_rows = state.range(0);
  read_file(state, spec);
}
BENCHMARK(BM_CsvSharedIds)->Arg(0)->Arg(20000)->Unit(benchmark::kMillisecond);

void BM_CsvHashed(benchmark::State& state) {
  const BenchFile file(csv_text());
  DataSpec spec;
  spec.files = {file.path()};
  read_file(state, spec);
}
BENCHMARK(BM_CsvHashed)->Unit(benchmark::kMillisecond);

// Rows of other parts are only cut, not parsed: all parts together stay close to one reader's time.
void BM_CsvOnePartOfEight(benchmark::State& state) {
  const BenchFile file(csv_text());
  DataSpec spec;
  spec.files = {file.path()};
  spec.id_space = 5382;
  int64_t rows = 0;
  for (auto _ : state) {
    ReadOptions options;
    options.part = {3, 8};
    auto reader = Reader::open(spec, options);
    Batch batch;
    while (*(*reader)->next(&batch)) benchmark::DoNotOptimize(batch.ids.raw());
    rows += kRows;
  }
  state.SetItemsProcessed(rows);
}
BENCHMARK(BM_CsvOnePartOfEight)->Unit(benchmark::kMillisecond);

void BM_Synthetic(benchmark::State& state) {
  DataSpec spec;
  spec.format = Format::kSynthetic;
  spec.synthetic.rows = kRows;
  read_file(state, spec);
}
BENCHMARK(BM_Synthetic)->Unit(benchmark::kMillisecond);

// Items are scores.
void BM_Auc(benchmark::State& state) {
  Random random(1);
  std::vector<float> scores(1'000'000);
  std::vector<float> labels(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(random.below(1 << 24)) * 0x1p-24F;
    labels[i] = static_cast<float>(random.below(2));
  }
  for (auto _ : state) benchmark::DoNotOptimize(*auc(scores, labels));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(scores.size()));
}
BENCHMARK(BM_Auc)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sidereal::data
