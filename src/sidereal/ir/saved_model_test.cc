#include "sidereal/ir/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sidereal/base/hash.h"
#include "sidereal/ir/testing/ops.h"
#include "sidereal/ir/text.h"

namespace sidereal::ir {
namespace {

using ::testing::HasSubstr;

OpRegistry registry_of_models() {
  OpRegistry out = testing::registry();
  out.add({.name = "Placeholder",
           .doc = "Is fed.",
           .attrs = {{"dtype", "dtype", true, ""}, {"shape", "shape", true, ""}},
           .infer = testing::infer_arg});
  return out;
}

const OpRegistry& registry() {
  static const OpRegistry registry = registry_of_models();
  return registry;
}

/// f(x; captured w, count) -> Pair(x, w), count + nothing.
SavedModel sample() {
  SavedModel model;
  model.producer = "sidereal 0";
  model.objects = R"({"root": 0})";
  model.values.push_back({"", false, false, Tensor::of<float>({3}, std::vector<float>{1, 2, 3})});
  model.values.push_back({"count", true, false, Tensor::scalar<int64_t>(7)});
  model.values.push_back({"flags", true, true, Tensor::zeros(DType::kBool, {2, 0})});
  const std::vector<std::string> words = {"one", std::string("a\0b", 3), ""};
  model.values.push_back({"words", true, false, Tensor::strings({3}, words)});
  SavedFunction f;
  f.name = "f";
  f.structure = "[]";
  Builder b(&f.graph, &registry());
  const auto placeholder = [&](const char* name, DType dtype, Shape shape) {
    return b.add("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}}, name);
  };
  f.inputs = {placeholder("x", DType::kFloat32, {-1}), placeholder("w", DType::kFloat32, {-1}),
              placeholder("count", DType::kInt64, {})};
  f.captures = {0, 1};
  const Output pair = b.add("Pair", {f.inputs[0], f.inputs[1]}, {}, "pair");
  f.outputs = {pair, {pair.node, 1}};
  f.assigned = {1};
  f.targets = {pair.node};
  model.functions.push_back(std::move(f));
  model.signatures.push_back({"serving_default", 0, {"x"}, {"output_0"}});
  return model;
}

std::string bytes_of(const SavedModel& model) {
  Result<std::string> bytes = encode_saved_model(model, registry());
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

/// Makes every checksum right again, as far as sections can still be told apart.
std::string with_checksums(std::string bytes) {
  size_t at = 8;
  if (bytes.size() < at + 4) return bytes;
  uint32_t length = 0;
  __builtin_memcpy(&length, bytes.data() + at, 4);
  at += 4 + size_t{length};
  while (at < bytes.size() && bytes.size() - at >= 20) {
    uint64_t size = 0;
    __builtin_memcpy(&size, bytes.data() + at + 12, 8);
    if (size > bytes.size() - at - 20) break;
    const uint64_t sum = base::hash64(bytes.data() + at + 20, size);
    __builtin_memcpy(bytes.data() + at + 4, &sum, 8);
    at += 20 + size;
  }
  return bytes;
}

std::string error_of(const std::string& bytes) {
  const auto model = decode_saved_model(bytes, registry());
  return model.ok() ? "" : base::message_of(model.status());
}

TEST(SavedModel, IsTheSameAfterReadingWhatWasWritten) {
  const SavedModel model = sample();
  const std::string bytes = bytes_of(model);
  const auto read = decode_saved_model(bytes, registry());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->producer, model.producer);
  EXPECT_EQ(read->objects, model.objects);
  ASSERT_EQ(read->functions.size(), 1U);
  const SavedFunction& f = read->functions[0];
  EXPECT_EQ(f.name, "f");
  EXPECT_EQ(to_text(f.graph), to_text(model.functions[0].graph));
  EXPECT_EQ(f.inputs, model.functions[0].inputs);
  EXPECT_EQ(f.captures, model.functions[0].captures);
  EXPECT_EQ(f.outputs, model.functions[0].outputs);
  EXPECT_EQ(f.assigned, model.functions[0].assigned);
  EXPECT_EQ(f.targets, model.functions[0].targets);
  ASSERT_EQ(read->values.size(), 4U);
  EXPECT_EQ(read->values[3].value.data<const std::string_view>()[1], std::string_view("a\0b", 3));
  EXPECT_EQ(read->values[1].name, "count");
  EXPECT_TRUE(read->values[1].variable);
  EXPECT_FALSE(read->values[1].trainable);
  EXPECT_TRUE(attr_equal(read->values[0].value, model.values[0].value));
  EXPECT_EQ(read->values[2].value.shape(), (Shape{2, 0}));
  ASSERT_NE(read->find_signature("serving_default"), nullptr);
  EXPECT_EQ(read->find_signature("serving_default")->inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(read->find_signature("other"), nullptr);
  EXPECT_EQ(bytes_of(*read), bytes);
}

TEST(SavedModel, ThatWasCutAnywhereIsRefused) {
  const std::string bytes = bytes_of(sample());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode_saved_model(bytes.substr(0, n), registry()).ok()) << n;
    EXPECT_FALSE(decode_saved_model(with_checksums(bytes.substr(0, n)), registry()).ok()) << n;
  }
  EXPECT_THAT(error_of(bytes + "x"), HasSubstr("1 bytes follow the last section"));
}

TEST(SavedModel, InWhichABitChangedIsRefusedByItsChecksum) {
  const std::string bytes = bytes_of(sample());
  for (size_t i = 0; i < bytes.size(); ++i) {
    // The name of the release is for people, and not covered.
    if (i >= 12 && i < 12 + sample().producer.size()) continue;
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_FALSE(decode_saved_model(changed, registry()).ok()) << i << " " << bit;
    }
  }
}

TEST(SavedModel, OfAnyBytesIsAModelOrAnError) {
  const std::string bytes = bytes_of(sample());
  int taken = 0;
  for (uint32_t seed = 0; seed < 20'000; ++seed) {
    std::mt19937 random(seed);
    std::string changed = bytes;
    for (uint32_t k = 0; k <= seed % 4; ++k) {
      const size_t at = random() % changed.size();
      if (random() % 2 == 0) {
        changed[at] = static_cast<char>(random());
      } else {
        changed[at] = static_cast<char>(random() % 2 == 0 ? 0xff : 0);
      }
    }
    const auto model = decode_saved_model(with_checksums(changed), registry());
    if (!model.ok()) continue;
    ++taken;
    EXPECT_TRUE(encode_saved_model(*model, registry()).ok()) << "seed " << seed;
  }
  EXPECT_GT(taken, 0);
}

TEST(SavedModel, OfALaterVersionIsRefusedByNumber) {
  std::string bytes = bytes_of(sample());
  bytes[4] = 9;
  EXPECT_THAT(error_of(bytes), HasSubstr("version 9, flags 0; this release reads versions 1 to 1"));
  EXPECT_THAT(error_of("PK"), HasSubstr("a saved model"));
  EXPECT_THAT(error_of("PK\3\4 and more of it"), HasSubstr("do not start with 'SRSM'"));
}

TEST(SavedModel, MustFitTogether) {
  const auto message = [](const std::function<void(SavedModel*)>& change) {
    SavedModel model = sample();
    change(&model);
    const auto bytes = encode_saved_model(model, registry());
    return bytes.ok() ? std::string() : base::message_of(bytes.status());
  };
  EXPECT_THAT(message([](SavedModel* m) {
                m->functions[0].captures = {0, 9};
              }),
              HasSubstr("function 0 ('f'): a captured value is not there"));
  EXPECT_THAT(message([](SavedModel* m) {
                m->functions[0].captures = {1, 1};
              }),
              HasSubstr("an input of float32[?] is fed with int64[]"));
  EXPECT_THAT(message([](SavedModel* m) {
                m->functions[0].captures = {0, 1, 1, 1};
              }),
              HasSubstr("more captures than inputs"));
  EXPECT_THAT(message([](SavedModel* m) { m->functions[0].inputs[1] = m->functions[0].inputs[0]; }),
              HasSubstr("named twice"));
  EXPECT_THAT(message([](SavedModel* m) {
                m->functions[0].inputs[0] = {NodeId(3), 0};
              }),
              HasSubstr("no Placeholder"));
  EXPECT_THAT(message([](SavedModel* m) {
                m->functions[0].outputs[0] = {NodeId(3), 2};
              }),
              HasSubstr("an output is not in the graph"));
  EXPECT_THAT(message([](SavedModel* m) { m->functions[0].targets = {NodeId(-5)}; }),
              HasSubstr("a target is not in the graph"));
  EXPECT_THAT(message([](SavedModel* m) { m->functions[0].assigned = {0}; }),
              HasSubstr("no variable"));
  EXPECT_THAT(message([](SavedModel* m) { m->functions[0].assigned = {2}; }),
              HasSubstr("another dtype"));
  EXPECT_THAT(message([](SavedModel* m) { m->signatures[0].function = 1; }),
              HasSubstr("no function"));
  EXPECT_THAT(message([](SavedModel* m) { m->signatures[0].inputs = {}; }),
              HasSubstr("names other inputs"));
  EXPECT_THAT(message([](SavedModel* m) { m->signatures.push_back(m->signatures[0]); }),
              HasSubstr("two signatures"));
  const Tensor nothing;
  EXPECT_THAT(message([&](SavedModel* m) { m->values[0].value = nothing; }), HasSubstr("is empty"));
}

}  // namespace
}  // namespace sidereal::ir
