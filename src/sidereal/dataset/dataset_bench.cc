#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/data/data_spec.h"
#include "sidereal/data/prefetch.h"
#include "sidereal/data/random.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/dataset/iterator.h"

// One iteration reads the whole file, or all elements, once; items are rows.

namespace sidereal::dataset {
namespace {

constexpr int kRows = 200'000;
constexpr int64_t kBatch = 1024;

// A click log of generated rows, removed at the end.
class BenchFile {
 public:
  BenchFile() {
    const int fd = mkstemp(path_.data());
    data::Random random(1);
    std::ofstream out(path_, std::ios::binary);
    for (int r = 0; r < kRows; ++r) {
      out << (r % 4 == 0 ? '1' : '0');
      for (int i = 0; i < 13; ++i) out << '\t' << random.below(500);
      for (int i = 0; i < 26; ++i) out << fmt::format("\t{:08x}", random.next() & 0xffffffff);
      out << '\n';
    }
    if (fd >= 0) close(fd);
  }
  ~BenchFile() { std::remove(path_.c_str()); }
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;

  [[nodiscard]] data::DataSpec spec() const {
    data::DataSpec spec;
    spec.format = data::Format::kCriteo;
    spec.files = {path_};
    return spec;
  }

 private:
  std::string path_ = "/tmp/sidereal_bench_XXXXXX";
};

const data::DataSpec& click_log() {
  static const BenchFile file;
  static const data::DataSpec spec = file.spec();
  return spec;
}

Parameter number(int64_t value) { return Parameter::of(Tensor::scalar(value)); }

DatasetPtr with(const std::string& op, const DatasetPtr& input, int64_t n) {
  return *Dataset::make({.op = op, .inputs = {input}, .parameters = {number(n)}});
}

void read_all(benchmark::State& state, const DatasetPtr& dataset, int64_t rows) {
  for (auto _ : state) {
    auto iterator = *Iterator::make(dataset, {});
    Element element;
    while (*iterator->next(&element)) benchmark::DoNotOptimize(element[0].tensor.raw());
  }
  state.SetItemsProcessed(state.iterations() * rows);
}

// The reader that loops of sessions use, to compare with.
void BM_PrefetchingReader(benchmark::State& state) {
  for (auto _ : state) {
    data::PrefetchOptions options;
    options.read.batch_size = kBatch;
    auto reader = *data::PrefetchingReader::open(click_log(), options);
    data::Batch batch;
    const auto late = std::chrono::steady_clock::now() + std::chrono::hours(1);
    while (*reader->next(&batch, late)) benchmark::DoNotOptimize(batch.ids.raw());
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK(BM_PrefetchingReader)->UseRealTime();

void BM_RowsPrefetched(benchmark::State& state) {
  const DatasetPtr rows =
      *Dataset::make({.op = "Rows",
                      .attrs = {{"spec", data::to_json(click_log())},
                                {"batch_size", kBatch},
                                {"columns", std::vector<std::string>{"dense", "ids", "label"}},
                                {"dtypes", std::vector<std::string>{"float32", "int64", "float32"}},
                                {"shapes", std::vector<int64_t>{2, -1, 13, 2, -1, 26, 1, -1}}}});
  read_all(state, with("Prefetch", rows, 8), kRows);
}
BENCHMARK(BM_RowsPrefetched)->UseRealTime();

void BM_LinesInBatches(benchmark::State& state) {
  const DatasetPtr lines = *Dataset::make(
      {.op = "TextLines", .parameters = {Parameter::of(Tensor::strings({}, click_log().files))}});
  read_all(state, with("Batch", lines, kBatch), kRows);
}
BENCHMARK(BM_LinesInBatches)->UseRealTime();

void BM_SlicesShuffledInBatches(benchmark::State& state) {
  const DatasetPtr slices = *Dataset::make(
      {.op = "TensorSlices",
       .parameters = {Parameter::of(Tensor::zeros(ir::DType::kFloat32, {kRows, 32}))}});
  read_all(state, with("Batch", with("Shuffle", slices, 10'000), kBatch), kRows);
}
BENCHMARK(BM_SlicesShuffledInBatches)->UseRealTime();

}  // namespace
}  // namespace sidereal::dataset
