#include "sidereal/kernels/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sidereal::kernels {
namespace {

std::vector<Initializer> all_initializers() {
  std::vector<Initializer> all;
  for (int i = 0; i <= static_cast<int>(Initializer::Kind::kGlorotUniform); ++i) {
    all.push_back({static_cast<Initializer::Kind>(i), 0.5F, 1.5F, 7, 3});
  }
  return all;
}

TEST(Initializer, KindsAreValidAndFoundByTheirNames) {
  for (const Initializer& initializer : all_initializers()) {
    EXPECT_TRUE(initializer.validate().ok());
    EXPECT_EQ(*initializer_kind_from_name(name_of(initializer.kind)), initializer.kind);
  }
  const auto unknown = initializer_kind_from_name("he");
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  for (const Initializer& initializer : all_initializers()) {
    EXPECT_NE(base::message_of(unknown.status()).find(name_of(initializer.kind)),
              std::string::npos);
  }
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

TEST(Initializer, APartHasTheRowsOfTheWholeThatAreItsOwn) {
  const std::vector<tensor::Shape> shapes = {{23}, {23, 1}, {11, 3}, {7, 2, 4}, {5, 700}, {3, 0}};
  for (const Initializer& initializer : all_initializers()) {
    for (const tensor::Shape& shape : shapes) {
      std::vector<float> whole(static_cast<size_t>(shape.num_elements()));
      initializer.fill(shape, 0, whole.data(), shape.num_elements());
      const int64_t rows = shape.dim(0);
      const int64_t width = shape.num_elements() / rows;
      for (const int64_t parts : {1, 2, 3, 30}) {
        for (int64_t part = 0; part < parts; ++part) {
          std::vector<float> want;
          for (int64_t r = part; r < rows; r += parts) {
            want.insert(want.end(), whole.begin() + r * width, whole.begin() + (r + 1) * width);
          }
          const auto n = static_cast<int64_t>(want.size());
          for (const int64_t piece : {1, 5, 1000000}) {
            std::vector<float> got(want.size(), -7.0F);
            for (int64_t at = 0; at < n; at += piece) {
              initializer.fill_part(shape, part, parts, at, got.data() + at,
                                    std::min(piece, n - at));
            }
            EXPECT_EQ(got, want) << name_of(initializer.kind) << " " << shape.to_string() << ": "
                                 << part << " of " << parts << " in pieces of " << piece;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sidereal::kernels
