#include "sidereal/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "sidereal/tensor/buffer.h"
#include "sidereal/tensor/dispatch.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::tensor {
namespace {

TEST(DType, NamesRoundTripAndUnknownNamesAreErrors) {
  for (int i = 1; i <= 14; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(*dtype_from_name(name_of(dtype)), dtype);
    EXPECT_TRUE(is_valid(dtype));
  }
  EXPECT_FALSE(dtype_from_name("float31").ok());
  EXPECT_FALSE(is_valid(static_cast<DType>(200)));
}

TEST(Half, EveryBitPatternSurvivesAFloat) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    Float16 h;
    h.bits = static_cast<uint16_t>(i);
    BFloat16 b;
    b.bits = static_cast<uint16_t>(i);
    const float hf = h;
    const float bf = b;
    if (std::isnan(hf)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(hf)))) << i;
    } else {
      EXPECT_EQ(Float16(hf).bits, i);
    }
    if (std::isnan(bf)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(bf)))) << i;
    } else {
      EXPECT_EQ(BFloat16(bf).bits, i);
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  // Halfway between neighbours, and a hair to either side, over every exponent.
  for (uint32_t i = 0; i < 0x7BFF; ++i) {
    Float16 low;
    low.bits = static_cast<uint16_t>(i);
    Float16 high;
    high.bits = static_cast<uint16_t>(i + 1);
    const double middle = (static_cast<double>(low) + static_cast<double>(high)) / 2;
    const auto even = static_cast<uint16_t>((i & 1) == 0 ? i : i + 1);
    EXPECT_EQ(Float16(middle).bits, even);
    EXPECT_EQ(Float16(static_cast<float>(middle)).bits, even);
    EXPECT_EQ(Float16(middle * (1 + 1e-14)).bits, i + 1);
    EXPECT_EQ(Float16(middle * (1 - 1e-14)).bits, i);
    EXPECT_EQ(Float16(-middle).bits, even | 0x8000);
  }
  EXPECT_EQ(Float16(65519.0F).bits, 0x7BFF);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(Float16(1e30F).bits, 0x7C00);
  EXPECT_EQ(BFloat16(1.00390625).bits, 0x3F80);          // 1 + 2^-8: a tie.
  EXPECT_EQ(BFloat16(1.00390625 + 1e-12).bits, 0x3F81);  // Lost if rounded to float first.
  EXPECT_EQ(BFloat16(3.4e38F).bits, 0x7F80);
  EXPECT_EQ(static_cast<float>(BFloat16(-2.5F)), -2.5F);
}

TEST(Dispatch, FindsTheTypeOrNamesTheTypes) {
  size_t bytes = 0;
  EXPECT_TRUE(visit_dtype<PlainTypes>(DType::kFloat16, [&]<class T>() { bytes = sizeof(T); }));
  EXPECT_EQ(bytes, 2u);
  EXPECT_FALSE(visit_dtype<RealTypes>(DType::kInt8, []<class T>() {}));
  const Status status = with_dtype<RealTypes>(DType::kInt8, []<class T>() -> Status { return {}; });
  EXPECT_EQ(base::message_of(status),
            "dtype int8 is not supported here; cast to one of float32, float64");
  EXPECT_EQ(static_cast<float>(Tensor::scalar_of(DType::kBFloat16, 1.5).data<BFloat16>()[0]), 1.5F);
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

TEST(Tensor, OfStringsOwnsTheBytesAndCopiesShareThem) {
  Tensor copy;
  {
    std::vector<std::string> values = {"one", std::string("a\0b", 3), ""};
    const Tensor t = Tensor::strings(Shape{3}, values);
    values.assign(3, "gone");
    copy = t.rows(1, 2);
  }
  const auto strings = copy.data<const std::string_view>();
  EXPECT_EQ(strings[0], std::string_view("a\0b", 3));
  EXPECT_EQ(strings[1], "");
  EXPECT_EQ(string_bytes(copy), 3u);
  const Tensor deep = copy.clone();
  EXPECT_NE(deep.data<const std::string_view>()[0].data(), strings[0].data());
  EXPECT_EQ(deep.data<const std::string_view>()[0], strings[0]);
}

TEST(Tensor, OfStringsStartsWithEmptyOnes) {
  const Tensor t = Tensor::empty(DType::kString, Shape{5});
  for (const std::string_view value : t.data<const std::string_view>()) {
    EXPECT_TRUE(value.empty());
  }
}

TEST(Tensor, EmptyTensorsAreDefined) {
  const Tensor t = Tensor::empty(DType::kInt64, Shape{0, 4});
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.nbytes(), 0u);
  EXPECT_FALSE(Tensor().defined());
}

TEST(Buffer, gives_back_the_whole_pages_of_what_is_not_needed_any_more) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const Buffer::Ptr buffer = Buffer::allocate(4 * kHugePage);
  std::memset(buffer->data(), 1, buffer->bytes());
  EXPECT_EQ(buffer->discard(100, kHugePage + 5), 100U);
  EXPECT_EQ(buffer->discard(100, 3 * kHugePage + 5), 3 * kHugePage);
  EXPECT_EQ(buffer->data()[kHugePage - 1], std::byte{1});
  EXPECT_EQ(buffer->data()[kHugePage], std::byte{0});
  EXPECT_EQ(buffer->data()[3 * kHugePage - 1], std::byte{0});
  EXPECT_EQ(buffer->data()[3 * kHugePage], std::byte{1});
  const Buffer::Ptr small = Buffer::allocate(64);
  small->data()[0] = std::byte{1};
  EXPECT_EQ(small->discard(0, 64), 64U);
  EXPECT_EQ(small->data()[0], std::byte{1});
}

}  // namespace
}  // namespace sidereal::tensor
