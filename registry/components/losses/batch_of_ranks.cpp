#include "registry/components/losses/batch_of_ranks.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainrun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GatherFunction : torch::autograd::Function<GatherFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, int64_t ranks_address) {
    Communicator& ranks = *reinterpret_cast<Communicator*>(ranks_address);  // NOLINT(performance-no-int-to-ptr)
    context->saved_data["ranks"] = ranks_address;
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes.insert(sizes.begin(), ranks.world_size());
    const at::Tensor all = at::zeros(sizes, rows.options());
    all[ranks.rank()].copy_(rows);  // the sum over ranks brings them together
    ranks.sum(all);
    return all.flatten(0, 1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    Communicator& ranks =  // NOLINTNEXTLINE(performance-no-int-to-ptr)
        *reinterpret_cast<Communicator*>(context->saved_data["ranks"].toInt());
    const at::Tensor all = gradients[0].contiguous().clone();
    ranks.sum(all);
    return {all.chunk(ranks.world_size()) [static_cast<size_t>(ranks.rank())], {}};
  }
};

}  // namespace

void BatchOfRanks::span(Communicator& ranks, bool) { ranks_ = &ranks; }

bool BatchOfRanks::gathers() const {
  return ranks_ != nullptr && ranks_->world_size() > 1 && is_training() && at::GradMode::is_enabled();
}

at::Tensor BatchOfRanks::gather(const at::Tensor& rows) const {
  return gathers() ? GatherFunction::apply(rows, reinterpret_cast<int64_t>(ranks_)) : rows;
}

int64_t BatchOfRanks::first_row(int64_t count) const { return gathers() ? ranks_->rank() * count : 0; }

}  // namespace trainrun
