// How samples become batches: the sections `dataloader` and `dataloader.sampler`.
#include <algorithm>

#include "registry/language/pattern.h"
#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

constexpr double kMostBatchSize = 1e9;  // far beyond any use, and so that no product leaves an int64

}  // namespace

void SamplerSection::describe(Fields<SamplerSection>& f) {
  f.required("type", &SamplerSection::type)
      .one_of({"WeightedRandom", "Stratified"})
      .doc("WeightedRandom draws samples by weight; Stratified gives each batch its share of every class");
  f.optional("weights", &SamplerSection::weights)
      .at_least(0)
      .words({"balanced"})
      .doc(
          "balanced: each class is drawn equally often; or a weight for each class; or the field that holds each "
          "sample's weight");
  f.optional("field", &SamplerSection::field).doc("the field that holds the class; the data set's target by default");
  f.optional("num_samples", &SamplerSection::num_samples)
      .at_least(1)
      .doc("number of samples drawn by weight in an epoch; by default as many as there are");
  f.optional("replacement", &SamplerSection::replacement).doc("a sample may be drawn by weight several times");
  f.rule({.when = {the("type").is("Stratified")},
          .all = {the("num_samples").is_missing(), the("replacement").is(true), the("weights").is("balanced")},
          .at = "type",
          .message = "weights, num_samples and replacement are only for WeightedRandom"});
}

void SamplerSection::check(Checker& checker) const {
  const auto* list = std::get_if<std::vector<double>>(&weights);
  if (list && std::all_of(list->begin(), list->end(), [](double weight) { return weight == 0; })) {
    checker.fail("weights", "are all 0, so that nothing would be drawn");
  }
}

void DataloaderSection::check(Checker& checker) const {
  const auto* size = micro_batch_size ? std::get_if<int64_t>(&*micro_batch_size) : nullptr;
  if (!size || *size < 1 || batch_size % *size == 0) return;
  int64_t nearest = std::min(*size, batch_size);
  while (batch_size % nearest != 0) --nearest;
  checker.fail("micro_batch_size", "is " + std::to_string(*size) + ", which does not divide batch_size, " +
                                       std::to_string(batch_size) + "; write " + std::to_string(nearest));
}

std::optional<SamplerSection> DataloaderSection::chosen_sampler() const {
  if (!sampler) return std::nullopt;
  if (const auto* section = std::get_if<SamplerSection>(&*sampler)) return *section;
  SamplerSection section;
  section.type = std::get<std::string>(*sampler);
  return section;
}

void DataloaderSection::describe(Fields<DataloaderSection>& f) {
  f.optional("batch_size", &DataloaderSection::batch_size)
      .at_least(1)
      .at_most(kMostBatchSize)
      .unit("samples")
      .doc("size of each process's batches");
  f.optional("eval_batch_size", &DataloaderSection::eval_batch_size)
      .at_least(1)
      .at_most(kMostBatchSize)
      .unit("samples")
      .doc("size of batches in evaluation; batch_size, or else micro_batch_size, by default");
  f.optional("micro_batch_size", &DataloaderSection::micro_batch_size)
      .one_of({"auto"})
      .at_least(1)
      .at_most(kMostBatchSize)
      .unit("samples")
      .doc(
          "in training, each batch is cut into pieces of this size, whose gradients are added up: less memory, and the "
          "same numbers but for rounding, except that BatchNorm, Dropout and losses that compare samples see pieces; "
          "auto: the largest divisor of batch_size that fits into the free memory, found when the run begins and kept");
  f.optional("shuffle", &DataloaderSection::shuffle).doc("a new order each epoch, from seed + epoch");
  f.optional("sampler", &DataloaderSection::sampler)
      .one_of({"WeightedRandom", "Stratified"})
      .doc(
          "in training, instead of a plain shuffle: WeightedRandom or Stratified, or a mapping with type and "
          "parameters");
  f.optional("drop_last", &DataloaderSection::drop_last).doc("leave out a last batch that is not full");
  f.optional("group_by_length", &DataloaderSection::group_by_length)
      .doc(
          "in training, make batches of samples of similar length, so that there is less padding: the shuffled samples "
          "are sorted by number of tokens within every 50 effective batches, as transformers' Trainer does. For texts "
          "that are padded to the longest of their batch");
  f.optional("num_workers", &DataloaderSection::num_workers)
      .at_least(0)
      .at_most(256)
      .doc("threads that make batches ahead of time; 0: none. The batches do not depend on it");
  f.rule({.when = {the("drop_last").is(true)},
          .all = {the("micro_batch_size").is_missing()},
          .at = "micro_batch_size",
          .message = "would have drop_last leave out another last batch; leave one of the two out"});
  f.rule({.when = {the("shuffle").is(false)},
          .all = {the("sampler").is_missing()},
          .at = "sampler",
          .message = "draws at random, but shuffle: false asks for the data's own order"});
  f.rule({.when = {the("group_by_length").is(true)},
          .all = {the("shuffle").is(true)},
          .at = "group_by_length",
          .message = "sorts what was shuffled, but shuffle: false asks for the data's own order"});
  f.rule({.when = {the("group_by_length").is(true)},
          .all = {the("sampler").is_missing()},
          .at = "group_by_length",
          .message = "is an order of its own, but sampler asks for another; leave out one of them"});
}

}  // namespace trainrun
