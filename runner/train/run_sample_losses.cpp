// The losses of single samples that a run keeps for the callback SampleLosses.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/train/job.h"
#include "runner/train/job_parts.h"

namespace trainrun {
namespace {

/// The losses of which each sample has its own, which is what the loss gives for a batch of that sample alone.
constexpr std::array kOfSingleSamples = {"CrossEntropyLoss", "CausalLMLoss",  "NLLLoss", "BCELoss", "BCEWithLogitsLoss",
                                         "MultiMarginLoss",  "FocalLoss",     "MSELoss", "L1Loss",  "SmoothL1Loss",
                                         "HuberLoss",        "PoissonNLLLoss"};

/// Others may compare the samples of a batch with each other.
void require_single_samples(const Recipe& recipe) {
  for (const Component<LossKind>& loss : recipe.loss) {
    if (std::ranges::find(kOfSingleSamples, loss.type) != kOfSingleSamples.end()) continue;
    throw Error(loss.type + " has no loss of single samples; leave SampleLosses out, or train by one of " +
                join({kOfSingleSamples.begin(), kOfSingleSamples.end()}));
  }
  if (!recipe.models.entries.empty()) {
    throw Error(
        "the losses of single samples are not kept where the recipe has other `models`; leave SampleLosses out");
  }
}

/// [N] float64: what the losses give for each sample alone.
at::Tensor losses_of_samples(const Model& model, const Batch& batch, const Tensors& outputs) {
  const int64_t samples = batch.size();
  Tensors losses;
  for (int64_t i = 0; i < samples; ++i) {
    const auto alone = [&](const at::Tensor& tensor) {
      return tensor.dim() > 0 && tensor.size(0) == samples ? tensor.narrow(0, i, 1) : tensor;
    };
    Batch one;
    for (const Batch::Field& field : batch.fields()) one.set(field.name, alone(field.tensor));
    Tensors own;
    for (const at::Tensor& output : outputs) own.push_back(alone(output.detach()));
    losses.push_back(model.loss(one, own).value());
  }
  return at::stack(losses);
}

void require_own_samples(const Job& job) {
  for (const auto& transform : job.transforms->training()) {
    if (transform->pairs()) {
      throw Error(
          "a transform of the training data mixes each sample with another one, so that losses belong to no single "
          "sample; leave it, or SampleLosses, out");
    }
  }
}

class RunSampleLosses : public SampleLossAccount {
 public:
  explicit RunSampleLosses(Job& job);

  void add(const Batch& batch, const std::vector<at::Tensor>& outputs, const Occasion& occasion) override;
  void keep_step() override;
  void keep_all() override;
  void save(Snapshot& snapshot) const override;
  void load(const Snapshot& snapshot) override;

 private:
  /// Of all ranks: [2, N] float64, sums and counts.
  at::Tensor of_all_ranks() const;
  void write(bool is_whole) const;
  void remove_later_epochs() const;

  Job& job_;
  at::Tensor sums_;   // [2, N] float64, where the model computes: of each sample its losses' sum, and how many
  at::Tensor order_;  // of the rank's samples in epoch_
  int64_t epoch_ = -1;
  std::vector<std::pair<at::Tensor, at::Tensor>> pending_;  // numbers and losses of the step that is being made
  bool has_begun_ = false;
};

RunSampleLosses::RunSampleLosses(Job& job) : job_(job) {
  require_single_samples(job.recipe);
  require_own_samples(job);
  sums_ = at::zeros({2, job.train_data->size()}, at::TensorOptions(at::kDouble).device(job.device));
}

void RunSampleLosses::add(const Batch& batch, const std::vector<at::Tensor>& outputs, const Occasion& occasion) {
  const at::NoGradGuard no_gradients;
  if (epoch_ != occasion.epoch) {
    order_ = job_.train_loader->order(occasion.epoch).to(at::kLong);
    epoch_ = occasion.epoch;
  }
  if (occasion.batch == job_.progress.batch) pending_.clear();  // of a step that was taken back, or is made once more
  if (batch.size() != job_.train_loader->batch_size(occasion.batch)) {
    throw Error("SampleLosses: a batch has " + std::to_string(batch.size()) + " samples, but is made of " +
                std::to_string(job_.train_loader->batch_size(occasion.batch)) +
                ": its losses belong to no single sample; leave SampleLosses out");
  }
  const at::Tensor numbers =
      order_.narrow(0, occasion.batch * job_.train_loader->full_batch_size(), batch.size()).to(job_.device);
  pending_.emplace_back(numbers, losses_of_samples(*job_.model, batch, outputs));
}

void RunSampleLosses::keep_step() {
  const at::NoGradGuard no_gradients;
  if (!std::exchange(has_begun_, true)) remove_later_epochs();
  for (const auto& [numbers, losses] : std::exchange(pending_, {})) {
    sums_.select(0, 0).index_add_(0, numbers, losses);
    sums_.select(0, 1).index_add_(0, numbers, at::ones_like(losses));
  }
  if (job_.progress.batch < job_.train_loader->num_batches()) return;
  write(/*is_whole=*/true);
  sums_.zero_();
}

void RunSampleLosses::keep_all() {
  if (job_.progress.batch > 0) write(/*is_whole=*/false);  // of the epoch that a limit ended; it may go on some day
}

at::Tensor RunSampleLosses::of_all_ranks() const {
  const at::Tensor all = sums_.to(at::kCPU).clone();
  if (!job_.group->is_alone()) job_.group->sum({all}, "the losses of samples");
  return all;
}

void RunSampleLosses::write(bool is_whole) const {
  const at::Tensor all = of_all_ranks();
  if (!job_.is_main() || !job_.folder) return;
  const at::Tensor means = (all[0] / all[1]).to(at::kFloat);  // 0 / 0: NaN
  create_folders(std::filesystem::path(job_.folder->path() + "/" + sample_loss_file(epoch_)).parent_path());
  write_safetensors(job_.folder->path() + "/" + sample_loss_file(epoch_), {{"loss", means}},
                    {{"format", "pt"}, {"whole_epoch", is_whole ? "yes" : "no"}});
}

void RunSampleLosses::remove_later_epochs() const {
  if (!job_.is_main() || !job_.folder) return;
  for (int64_t epoch = job_.progress.epoch;; ++epoch) {  // of a start that saved nothing after them
    const std::string path = job_.folder->path() + "/" + sample_loss_file(epoch);
    if (!std::filesystem::exists(path)) return;
    remove_all(path);
  }
}

void RunSampleLosses::save(Snapshot& snapshot) const { snapshot.tensors.emplace_back("sample_losses", of_all_ranks()); }

/// The ranks may be others than those that saved: rank 0 has it all.
void RunSampleLosses::load(const Snapshot& snapshot) {
  const at::NoGradGuard no_gradients;
  for (const auto& [name, tensor] : snapshot.tensors) {
    if (name != "sample_losses") continue;
    if (tensor.sizes() != sums_.sizes()) throw Error("SampleLosses: the checkpoint is of other training data");
    if (job_.is_main()) sums_.copy_(tensor);
  }
}

}  // namespace

std::unique_ptr<SampleLossAccount> sample_losses_of(Job& job) { return std::make_unique<RunSampleLosses>(job); }

}  // namespace trainrun
