#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/serving/signature.h"
#include "sidereal/tensor/tensor.h"

/// The messages of TensorFlow Serving's Predict, without protobuf's objects: what is read shows the
/// request's bytes, and takes no memory that these bytes do not stand for.
namespace sidereal::serving {

/// An input of a request: its TensorProto as bytes.
struct GivenInput {
  std::string_view name;
  std::string_view message;
};

/// tensorflow.serving.PredictRequest. Borrows the bytes it was read from.
struct PredictRequest {
  std::string_view model;
  std::string_view signature;  ///< "": the default one.
  std::string_view label;
  int64_t version = 0;
  bool has_version = false;
  bool has_label = false;
  std::vector<GivenInput> inputs;  ///< Of those with one name the last counts.
  std::vector<std::string_view> output_filter;
  std::deque<std::string> joined;  ///< Of inputs that came in several parts.
};

/// Inputs, and outputs that are asked for, that a request may have.
constexpr size_t kNamesMax = 4096;

/// Errors: kInvalidArgument for bytes that are no such message.
Result<PredictRequest> read_predict_request(std::string_view message);

/// The tensor of a TensorProto. As in TensorFlow the last of too few values stands for the rest.
/// Errors: kInvalidArgument, with `name`, for what is no tensor, or one of more than `bytes_max`.
Result<tensor::Tensor> read_tensor(std::string_view name, std::string_view message,
                                   size_t bytes_max);

/// What a request gives to the inputs of a signature, in their order.
/// Errors: kInvalidArgument names what does not fit.
Result<Columns> read_columns(const PredictRequest& request, const Signature& signature,
                             size_t bytes_max);

/// How many rows there are; -1 where inputs have no open extent, or not the same, in front.
int64_t rows_of(std::span<const tensor::Tensor> columns, const Signature& signature);

/// The outputs that a request asks for, by place. kInvalidArgument names one that is not there.
Result<std::vector<size_t>> wanted_outputs(const PredictRequest& request,
                                           const Signature& signature);

/// tensorflow.serving.PredictResponse with the outputs at `wanted`.
/// Errors: kUnimplemented for a dtype that TensorFlow's messages have not.
Result<std::string> write_predict_response(const Version& version, const Signature& signature,
                                           std::span<const size_t> wanted,
                                           std::span<const tensor::Tensor> outputs);

}  // namespace sidereal::serving
