#include "sidereal/kernels/prepared_matmul.h"

#include <dnnl.h>

#include <array>

#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/one_omp_thread.h"

namespace sidereal::kernels {
namespace {

/// oneDNN calls fail for want of memory only: what is asked for is checked before.
void must(dnnl_status_t status, const char* what) {
  SR_CHECK(status == dnnl_success, "{} gave {}", what, static_cast<int>(status));
}

/// The processor, as oneDNN sees it. One for all threads; it holds no state of theirs.
dnnl_engine_t engine() {
  static dnnl_engine* const kEngine = [] {
    dnnl_engine_t made = nullptr;
    must(dnnl_engine_create(&made, dnnl_cpu, 0), "dnnl_engine_create");
    return made;
  }();
  return kEngine;
}

dnnl_data_type_t type_of(tensor::DType dtype) {
  SR_CHECK(dtype == tensor::DType::kFloat32 || dtype == tensor::DType::kBFloat16,
           "a prepared product of {}", tensor::name_of(dtype));
  return dtype == tensor::DType::kFloat32 ? dnnl_f32 : dnnl_bf16;
}

/// Of a stack of matrices [batch, rows, columns], stored [batch, columns, rows] if `transposed`.
/// `row`: elements from one stored row to the next; 0: they follow one another.
dnnl_memory_desc_t describe(int64_t batch, int64_t rows, int64_t columns, bool transposed,
                            dnnl_data_type_t dtype, int64_t row = 0) {
  const std::array<dnnl_dim_t, 3> dims = {batch, rows, columns};
  if (row == 0) row = transposed ? rows : columns;
  const std::array<dnnl_dim_t, 3> strides = {row * (transposed ? columns : rows),
                                             transposed ? 1 : row, transposed ? row : 1};
  dnnl_memory_desc_t out;
  must(dnnl_memory_desc_init_by_strides(&out, 3, dims.data(), dtype, strides.data()),
       "dnnl_memory_desc_init_by_strides");
  return out;
}

dnnl_primitive_desc_t describe_product(const PreparedMatMul::Form& f,
                                       std::array<dnnl_memory_desc_t, 4>* places) {
  const MatMulDims& d = f.dims;
  (*places)[0] = describe(f.one_a ? 1 : f.batch, d.m, d.k, d.trans_a, type_of(f.in), f.a_row);
  (*places)[1] = describe(f.one_b ? 1 : f.batch, d.k, d.n, d.trans_b, type_of(f.in));
  (*places)[2] = describe(1, 1, d.n, false, dnnl_f32);
  (*places)[3] = describe(f.batch, d.m, d.n, false, type_of(f.out));
  dnnl_matmul_desc_t product;
  must(dnnl_matmul_desc_init(&product, places->data(), &(*places)[1],
                             f.has_bias ? &(*places)[2] : nullptr, &(*places)[3]),
       "dnnl_matmul_desc_init");
  dnnl_primitive_attr_t attr = nullptr;
  must(dnnl_primitive_attr_create(&attr), "dnnl_primitive_attr_create");
  must(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user),
       "dnnl_primitive_attr_set_scratchpad_mode");
  dnnl_primitive_desc_t made = nullptr;
  const dnnl_status_t status = dnnl_primitive_desc_create(&made, &product, attr, engine(), nullptr);
  SR_CHECK(status == dnnl_success, "oneDNN has no {} product of {} [{}, {}] x [{}, {}]: {}",
           tensor::name_of(f.in), f.batch, d.m, d.k, d.k, d.n, static_cast<int>(status));
  dnnl_primitive_attr_destroy(attr);
  return made;
}

}  // namespace

bool has_bfloat_units() {
  // oneDNN decides what it multiplies with, so it is asked.
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  return isa == dnnl_cpu_isa_avx512_core_bf16 || isa == dnnl_cpu_isa_avx512_core_amx;
}

/// oneDNN's objects for one form.
struct PreparedMatMul::Primitive {
  explicit Primitive(const Form& made_for) : form(made_for) {
    const internal::OneOmpThread one;
    std::array<dnnl_memory_desc_t, 4> places;
    const dnnl_primitive_desc_t described = describe_product(form, &places);
    must(dnnl_primitive_create(&product, described), "dnnl_primitive_create");
    const dnnl_memory_desc_t* pad =
        dnnl_primitive_desc_query_md(described, dnnl_query_scratchpad_md, 0);
    scratch_bytes = pad == nullptr ? 0 : dnnl_memory_desc_get_size(pad);
    for (size_t i = 0; i < places.size(); ++i) add_memory(&places[i], i);
    if (scratch_bytes > 0) add_memory(pad, places.size());
    dnnl_primitive_desc_destroy(described);
    must(dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags), "dnnl_stream_create");
  }
  ~Primitive() {
    for (const dnnl_memory_t one : memory) {
      if (one != nullptr) dnnl_memory_destroy(one);
    }
    dnnl_primitive_destroy(product);
    dnnl_stream_destroy(stream);
  }
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;

  void add_memory(const dnnl_memory_desc_t* desc, size_t at) {
    must(dnnl_memory_create(&memory[at], desc, engine(), DNNL_MEMORY_NONE), "dnnl_memory_create");
  }

  Form form;
  size_t scratch_bytes = 0;
  dnnl_primitive_t product = nullptr;
  dnnl_stream_t stream = nullptr;
  std::array<dnnl_memory_t, 5> memory = {};  // a, b, bias, out, scratch.
};

PreparedMatMul::PreparedMatMul() = default;
PreparedMatMul::~PreparedMatMul() = default;

size_t PreparedMatMul::prepare(const Form& form) {
  const MatMulDims& d = form.dims;
  SR_CHECK(d.m > 0 && d.k > 0 && d.n > 0 && form.batch > 0, "a product of {} [{}, {}] x [{}, {}]",
           form.batch, d.m, d.k, d.k, d.n);
  if (primitive_ == nullptr || !(primitive_->form == form)) {
    primitive_ = std::make_unique<Primitive>(form);
  }
  return primitive_->scratch_bytes;
}

void PreparedMatMul::run(const void* a, const void* b, const float* bias, void* out,
                         void* scratch) {
  SR_CHECK(primitive_ != nullptr, "PreparedMatMul::run() before prepare()");
  const internal::OneOmpThread one;
  Primitive& p = *primitive_;
  // oneDNN takes inputs, too, by pointers that could be written through.
  const std::array<void*, 5> places = {const_cast<void*>(a), const_cast<void*>(b),
                                       const_cast<float*>(bias), out, scratch};
  constexpr std::array<int, 5> kRoles = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                         DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
  std::array<dnnl_exec_arg_t, 5> args;
  int count = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (p.memory[i] == nullptr || (i == 2 && !p.form.has_bias)) continue;
    must(dnnl_memory_set_data_handle(p.memory[i], places[i]), "dnnl_memory_set_data_handle");
    args[count++] = {kRoles[i], p.memory[i]};
  }
  must(dnnl_primitive_execute(p.product, p.stream, count, args.data()), "dnnl_primitive_execute");
  must(dnnl_stream_wait(p.stream), "dnnl_stream_wait");
}

}  // namespace sidereal::kernels
