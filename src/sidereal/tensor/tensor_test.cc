#include "sidereal/tensor/tensor.h"

#include <gtest/gtest.h>

namespace sidereal::tensor {
namespace {

TEST(DType, NamesRoundTripAndUnknownNamesAreErrors) {
  for (int i = 1; i <= 13; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(*dtype_from_name(name_of(dtype)), dtype);
    EXPECT_TRUE(is_valid(dtype));
  }
  EXPECT_FALSE(dtype_from_name("float31").ok());
  EXPECT_FALSE(is_valid(static_cast<DType>(200)));
}

TEST(Shape, UnknownDimensionsAcceptConcreteOnes) {
  const Shape partial{-1, 3};
  EXPECT_TRUE(partial.accepts(Shape{5, 3}));
  EXPECT_FALSE(partial.accepts(Shape{5, 4}));
  EXPECT_FALSE(partial.accepts(Shape{5}));
  EXPECT_TRUE(Shape::unknown_rank().accepts(Shape{5}));
  EXPECT_EQ(partial.to_string(), "[?,3]");
  EXPECT_EQ(partial.num_elements(), -1);
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ((Shape{2, 0}).num_elements(), 0);
}

TEST(Tensor, CopiesShareBytesAndClonesDoNot) {
  const Tensor a = Tensor::of<float>(Shape{2, 2}, std::vector<float>{1, 2, 3, 4});
  const Tensor b = a;
  const Tensor c = a.clone();
  a.data<float>()[0] = 9;
  EXPECT_EQ(b.data<float>()[0], 9);
  EXPECT_EQ(c.data<float>()[0], 1);
  EXPECT_EQ(a.rows(1, 1).data<float>()[1], 4);
  EXPECT_EQ(a.reshaped(Shape{4}).shape(), (Shape{4}));
  EXPECT_EQ(a.to_string(), "float32[2,2]");
}

TEST(Tensor, BigBuffersAreZeroedAndAligned) {
  const Tensor t = Tensor::zeros(DType::kFloat32, Shape{1 << 20});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u);
  EXPECT_EQ(t.data<float>()[(1 << 20) - 1], 0.0f);
}

TEST(Tensor, EmptyTensorsAreDefined) {
  const Tensor t = Tensor::empty(DType::kInt64, Shape{0, 4});
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.nbytes(), 0u);
  EXPECT_FALSE(Tensor().defined());
}

}  // namespace
}  // namespace sidereal::tensor
