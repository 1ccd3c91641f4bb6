#include <algorithm>
#include <string>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/parse/protobuf_wire.h"
#include "sidereal/serving/predict_message.h"
#include "sidereal/tensor/strings.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace serving = sidereal::serving;
namespace tensor = sidereal::tensor;
using tensor::Tensor;

constexpr size_t kBytesMax = size_t{1} << 20;

bool is_same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == tensor::DType::kString) {
    return tensor::strings_to_bytes(a) == tensor::strings_to_bytes(b);
  }
  return a.nbytes() == 0 || std::equal(a.raw(), a.raw() + a.nbytes(), b.raw());
}

/// What was read is written, and read again as it was.
void check_again(const Tensor& value) {
  const serving::Version version{.model = "m", .number = 1, .labels = {}, .signatures = {}};
  const serving::Signature signature{
      .name = "s", .inputs = {}, .outputs = {"y"}, .batcher = nullptr};
  const std::vector<size_t> wanted = {0};
  const std::vector<Tensor> outputs = {value};
  const auto written = serving::write_predict_response(version, signature, wanted, outputs);
  SR_CHECK(written.ok(), "{}", sidereal::base::message_of(written.status()));
  // Field 1 of an answer is what field 2 of a request is: an entry with a name and a tensor.
  sidereal::parse::WireReader reader(*written);
  sidereal::parse::Field entry;
  SR_CHECK(reader.next(&entry) && entry.number == 1, "an answer has no output");
  std::string_view message;
  for (sidereal::parse::WireReader fields(entry.bytes); !fields.done();) {
    sidereal::parse::Field field;
    SR_CHECK(fields.next(&field), "an output makes no sense");
    if (field.number == 2) message = field.bytes;
  }
  const auto again = serving::read_tensor("y", message, kBytesMax);
  SR_CHECK(again.ok() && is_same(*again, value), "another tensor");
}

}  // namespace

/// A PredictRequest, and the tensors in it.
SR_FUZZ_TARGET(predict_message) {
  const auto request = serving::read_predict_request(input);
  if (!request.ok()) return;
  for (const serving::GivenInput& given : request->inputs) {
    const auto made = serving::read_tensor(given.name, given.message, kBytesMax);
    if (!made.ok()) continue;
    SR_CHECK(made->nbytes() <= kBytesMax, "{} bytes", made->nbytes());
    check_again(*made);
  }
}
