#include "sidereal/store/initializer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sidereal::store {
namespace {

std::vector<Initializer> all_initializers() {
  std::vector<Initializer> all;
  for (int i = 0; i <= static_cast<int>(Initializer::Kind::kGlorotUniform); ++i) {
    all.push_back({static_cast<Initializer::Kind>(i), 0.5F, 1.5F, 7, 3});
  }
  return all;
}

TEST(Initializer, KindsAreValidNamedAndSurviveEncoding) {
  for (const Initializer& initializer : all_initializers()) {
    EXPECT_TRUE(initializer.validate().ok());
    EXPECT_EQ(*initializer_kind_from_name(name_of(initializer.kind)), initializer.kind);
    base::ByteWriter writer;
    encode(initializer, &writer);
    base::ByteReader reader(writer.bytes());
    Initializer read;
    ASSERT_TRUE(decode(&reader, &read).ok());
    EXPECT_EQ(read, initializer);
    base::ByteReader cut(std::string_view(writer.bytes()).substr(0, 10));
    EXPECT_EQ(decode(&cut, &read).code(), StatusCode::kDataLoss);
  }
  EXPECT_FALSE(initializer_kind_from_name("he").ok());
}

TEST(Initializer, BadParametersAreRefused) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE((Initializer{Initializer::Kind::kUniform, 2.0F, 1.0F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{Initializer::Kind::kUniform, -3e38F, 3e38F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{Initializer::Kind::kNormal, 0.0F, -1.0F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{Initializer::Kind::kConstant, inf, 0.0F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{static_cast<Initializer::Kind>(50), 0.0F, 0.0F, 0, 0}.validate().ok()));
}

TEST(Initializer, GlorotBoundsFollowTheShape) {
  const Initializer glorot{Initializer::Kind::kGlorotUniform, 0.0F, 0.0F, 1, 1};
  std::vector<float> v(416 * 400);
  glorot.fill({416, 400}, 0, v.data(), static_cast<int64_t>(v.size()));
  const float limit = std::sqrt(6.0F / 816.0F);
  float top = 0;
  for (const float x : v) top = std::max(top, std::fabs(x));
  EXPECT_LE(top, limit);
  EXPECT_GT(top, limit * 0.99F);
}

TEST(Initializer, APieceEqualsThatPieceOfTheWhole) {
  for (const Initializer& initializer : all_initializers()) {
    std::vector<float> whole(1000);
    std::vector<float> piece(100);
    initializer.fill({10, 100}, 0, whole.data(), 1000);
    initializer.fill({10, 100}, 333, piece.data(), 100);
    EXPECT_EQ(piece, std::vector<float>(whole.begin() + 333, whole.begin() + 433));
  }
}

}  // namespace
}  // namespace sidereal::store
