#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Lets float32 products of matrices read bfloat16: every MatMul gets Casts in front of its inputs
/// and sums in float32 (Micikevicius et al., Mixed Precision Training, 2018, with bfloat16's range,
/// so that no loss scaling is needed). What is computed from products and read by products, by
/// element-wise ops and by BiasAddGrad only lives in bfloat16 between them: activations and their
/// gradients. What is only moved on its way to products (Concat, Stack, Reshape, ...) is moved in
/// bfloat16. Everything else stays float32: variables and their gradients, optimizers, losses,
/// reductions, embeddings, values that are fetched. Not lowered: stacks of products with vectors,
/// which gain nothing. Relative error of a product's input: 2^-9.
///
/// To be run after gradients were taken and before fuse(), and absorb_casts() after it.
Result<StepGraph> lower_products(const StepGraph& step, const ir::OpRegistry& registry);

/// Makes Casts between float32 and bfloat16 part of the nodes beside them where these can: products
/// look-ups and element-wise nodes write bfloat16, element-wise nodes read it. Results are the same
/// to the last bit.
Result<StepGraph> absorb_casts(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
