#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sidereal/tensor/tensor.h"

namespace sidereal::ckpt {

/// A folder for one test, removed at its end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// The path of `name` in the folder.
  [[nodiscard]] std::string path(const std::string& name) const;
  /// The files in it, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::string contents(const std::string& name) const;
  void write(const std::string& name, std::string_view bytes) const;

 private:
  std::string folder_;
};

/// A tensor of plain elements: float32 are 0, 1, 2, ..., others have bytes that differ.
tensor::Tensor numbers(tensor::DType dtype, const tensor::Shape& shape);

/// The bytes of its elements.
std::string_view bytes_of(const tensor::Tensor& t);

}  // namespace sidereal::ckpt
