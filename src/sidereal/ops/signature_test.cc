#include "sidereal/ops/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "sidereal/ops/ops.h"

namespace sidereal::ops {
namespace {

using ir::DType;
using ::testing::HasSubstr;

const ir::OpRegistry& registry() {
  static const auto* const registry = [] {
    auto* made = new ir::OpRegistry;
    register_all(made);
    return made;
  }();
  return *registry;
}

OpSignature of(const char* op) { return signature_of(*registry().find(op)); }

TEST(Signature, SaysWhichInputsHaveOneDtype) {
  const OpSignature add = of("Sub");
  ASSERT_TRUE(add.known);
  ASSERT_EQ(add.inputs.size(), 2U);
  EXPECT_EQ(add.inputs[1].same_as, 0);
  EXPECT_EQ(describe_dtypes(add.inputs[0].dtypes), "any number");
  ASSERT_EQ(add.outputs.size(), 1U);
  EXPECT_EQ(add.outputs[0].same_as, 0);
  const OpSignature select = of("Select");
  EXPECT_EQ(describe_dtypes(select.inputs[0].dtypes), "bool");
  EXPECT_EQ(select.inputs[2].same_as, 1);
  const OpSignature gather = of("Gather");
  EXPECT_EQ(describe_dtypes(gather.inputs[0].dtypes), "any");
  EXPECT_EQ(describe_dtypes(gather.inputs[1].dtypes), "int32 or int64");
  EXPECT_EQ(gather.outputs[0].same_as, 0);
}

TEST(Signature, SaysWhatOutputsAre) {
  const OpSignature equal = of("Equal");
  EXPECT_EQ(equal.outputs[0].same_as, -1);
  EXPECT_EQ(equal.outputs[0].dtype, DType::kBool);
  const OpSignature top = of("TopK");
  ASSERT_EQ(top.outputs.size(), 2U);
  EXPECT_EQ(top.outputs[0].same_as, 0);
  EXPECT_EQ(top.outputs[1].dtype, DType::kInt32);
}

TEST(Signature, IsKnownOfEveryOpThatNeedsNoFunction) {
  const std::set<std::string> open = {"FunctionCall",
                                      "If",
                                      "While",
                                      "Scan",
                                      "WithGradient",
                                      "FusedElementwise",
                                      "TableExport",
                                      "EmbeddingUpdate",
                                      "UpdateJoinedRows",
                                      "GatherPartsConcat",
                                      "Recv"};
  for (const std::string& name : registry().names()) {
    EXPECT_EQ(of(name.c_str()).known, !open.contains(name)) << name;
  }
}

TEST(DescribeOp, HasTheDocTheDtypesAndTheAttributes) {
  const std::string text = describe_op(*registry().find("Gather"));
  EXPECT_THAT(text, HasSubstr("inputs: any; int32 or int64"));
  EXPECT_THAT(text, HasSubstr("outputs: as input 0"));
  EXPECT_THAT(text, HasSubstr("gradient: yes"));
  EXPECT_THAT(text, HasSubstr("axis: int, optional."));
}

TEST(OpsPage, IsTheOneInDocs) {
  const std::string path = "docs/ops.md";
  const std::string page = ops_page(registry());
  if (std::getenv("SIDEREAL_BLESS") != nullptr) std::ofstream(path) << page;
  std::ifstream file(path);
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(written == page) << path << " is out of date; write it anew: SIDEREAL_BLESS=1 "
                               << "build/dev/tests/ops_test --gtest_filter='*InDocs'";
}

}  // namespace
}  // namespace sidereal::ops
