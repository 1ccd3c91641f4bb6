#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "sidereal/parse/csv.h"
#include "sidereal/parse/example.h"
#include "sidereal/parse/text.h"

namespace sidereal::parse {
namespace {

std::string field(int number, const std::string& bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t size = bytes.size();
  for (; size > 0x7F; size >>= 7) out += static_cast<char>((size & 0x7F) | 0x80);
  out += static_cast<char>(size);
  return out + bytes;
}

/// A row of a click log: a label, 13 numbers of one float each, 26 categories of 8 letters.
std::string click_example() {
  std::string entries;
  const auto add = [&](const std::string& name, const std::string& feature) {
    entries += field(1, field(1, name) + field(2, feature));
  };
  add("label", field(3, field(1, "\x01")));
  for (int i = 0; i < 13; ++i) add("I" + std::to_string(i), field(2, field(1, "abcd")));
  for (int i = 0; i < 26; ++i) add("C" + std::to_string(i), field(1, field(1, "68fd1e64")));
  return field(1, entries);
}

void decode_example(benchmark::State& state) {
  const std::string example = click_example();
  std::vector<NamedFeature> features;
  std::vector<std::string_view> texts;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  for ([[maybe_unused]] auto _ : state) {
    bool good = read_example(example, &features).ok();
    texts.clear();
    floats.clear();
    ints.clear();
    for (const NamedFeature& named : features) {
      const FeatureKind kind = named.feature.kind;
      good &= kind == FeatureKind::kBytes    ? append_values(named.feature, &texts).ok()
              : kind == FeatureKind::kFloats ? append_values(named.feature, &floats).ok()
                                             : append_values(named.feature, &ints).ok();
    }
    if (!good) state.SkipWithError("the example is broken");
    benchmark::DoNotOptimize(texts.data());
  }
  state.SetItemsProcessed(state.iterations() * 40);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(example.size()));
}
BENCHMARK(decode_example);

void split_record(benchmark::State& state) {
  std::string record = "1";
  for (int i = 0; i < 13; ++i) record += ",123.5";
  for (int i = 0; i < 26; ++i) record += state.range(0) != 0 ? ",\"68fd1e64\"" : ",68fd1e64";
  std::vector<std::string_view> fields;
  std::string scratch;
  for ([[maybe_unused]] auto _ : state) {
    if (!split_csv(record, {.strict = true}, &fields, &scratch).ok()) {
      state.SkipWithError("the record is broken");
    }
    benchmark::DoNotOptimize(fields.data());
  }
  state.SetItemsProcessed(state.iterations() * 40);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(record.size()));
}
BENCHMARK(split_record)->ArgName("quoted")->Arg(0)->Arg(1);

void read_float(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    std::string_view text = "-1234.5678";
    benchmark::DoNotOptimize(text);
    float out = 0;
    benchmark::DoNotOptimize(parse_number(text, &out));
    benchmark::DoNotOptimize(out);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(read_float);

}  // namespace
}  // namespace sidereal::parse
