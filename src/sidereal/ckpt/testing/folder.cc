#include "sidereal/ckpt/testing/folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace sidereal::ckpt {

Folder::Folder() : folder_(testing::TempDir() + "ckpt_XXXXXX") {
  EXPECT_NE(mkdtemp(folder_.data()), nullptr);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Folder::path(const std::string& name) const { return folder_ + "/" + name; }

std::vector<std::string> Folder::names() const {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    out.push_back(entry.path().filename());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Folder::contents(const std::string& name) const {
  std::ifstream file(path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Folder::write(const std::string& name, std::string_view bytes) const {
  std::ofstream(path(name), std::ios::binary) << bytes;
}

tensor::Tensor numbers(tensor::DType dtype, const tensor::Shape& shape) {
  tensor::Tensor out = tensor::Tensor::empty(dtype, shape);
  if (dtype == tensor::DType::kFloat32) {
    float next = 0;
    for (float& value : out.data<float>()) value = next++;
    return out;
  }
  const int bits = dtype == tensor::DType::kBool ? 1 : 0x7B;
  for (size_t i = 0; i < out.nbytes(); ++i) {
    out.raw()[i] = static_cast<std::byte>(i * 37 / 2 & static_cast<size_t>(bits));
  }
  return out;
}

std::string_view bytes_of(const tensor::Tensor& t) {
  return {reinterpret_cast<const char*>(t.raw()), t.nbytes()};
}

}  // namespace sidereal::ckpt
