#include "registry/hints.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

namespace trainrun {
namespace {

using Pairing = std::pair<std::string_view, std::string_view>;

/// What other systems call it (folded) -> what recipes call it.
constexpr auto kOtherSpellings = std::to_array<Pairing>({
    {"learningrate", "lr"},
    {"urls", "path"},
    {"buffersize", "shuffle_buffer"},
    {"shufflebuffersize", "shuffle_buffer"},
    {"stratified", "stratify"},
    {"epochs", "num_epochs"},
    {"maxepochs", "num_epochs"},
    {"numtrainepochs", "num_epochs"},
    {"target", "type"},
    {"class", "type"},
    {"classpath", "type"},
    {"steps", "max_steps"},
    {"totalsteps", "max_steps"},
    {"gradclip", "max_grad_norm"},
    {"gradientclipval", "max_grad_norm"},
    {"clipgradnorm", "max_grad_norm"},
    {"batchsize", "batch_size"},
    {"perdevicetrainbatchsize", "batch_size"},
    {"bs", "batch_size"},
    {"workers", "num_workers"},
    {"accumulategradbatches", "gradient_accumulation_steps"},
    {"gradaccumsteps", "gradient_accumulation_steps"},
    {"precision", "mixed_precision"},
    {"fp16", "mixed_precision"},
    {"bf16", "mixed_precision"},
    {"strategy", "distributed_type"},
    {"worldsize", "num_processes"},
    {"nprocpernode", "num_processes"},
    {"criterion", "loss"},
    {"lossfn", "loss"},
    {"data", "dataset"},
    {"datasets", "dataset"},
    {"lrscheduler", "scheduler"},
    {"optim", "optimizer"},
    {"infeatures", "in_features"},
    {"outfeatures", "out_features"},
    {"units", "out_features"},
    {"filters", "out_channels"},
    {"dropout", "p"},
    {"rate", "p"},
    {"hiddendim", "hidden_size"},
    {"numwarmupsteps", "warmup_steps"},
    {"wd", "weight_decay"},
    {"beta1", "betas"},
    {"epsilon", "eps"},
    {"warmup", "warmup_steps"},
    {"savetotallimit", "keep_last"},
    {"loggingsteps", "every_steps"},
    {"valid", "eval"},
    {"val", "eval"},
    {"validation", "eval"},
    {"test", "eval"},
    {"evalbatchsize", "eval_batch_size"},
    {"dense", "Linear"},
    {"adamwtorch", "AdamW"},
    {"crossentropy", "CrossEntropyLoss"},
    {"mse", "MSELoss"},
    {"acc", "Accuracy"},
    {"onecycle", "OneCycleLR"},
    {"cosine", "CosineAnnealingLR"},
    {"linear", "LinearWithWarmup"},
    {"concatenate", "Concat"},
    {"cat", "Concat"},
    {"clipnorm", "max_grad_norm"},
    {"randomseed", "seed"},
    {"from", "inputs"},
    {"input", "inputs"},
    {"output", "outputs"},
    {"prob", "p"},
    {"params", "parameters"},
    {"args", "parameters"},
    {"f1score", "F1"},
    {"f1macro", "F1"},
    {"mcc", "MatthewsCorrCoef"},
    {"auroc", "AUROC"},
    {"rocauc", "AUROC"},
    {"meansquarederror", "MSE"},
    {"meanabsoluteerror", "MAE"},
    {"perdeviceevalbatchsize", "eval_batch_size"},
    {"trainbatchsize", "batch_size"},
    {"batchnorm", "BatchNorm2d"},
    {"fullyconnected", "Linear"},
    {"fc", "Linear"},
    {"conv", "Conv2d"},
    {"maxpool", "MaxPool2d"},
    {"lossfunction", "loss"},
    {"objective", "loss"},
    {"maxgradientnorm", "max_grad_norm"},
    {"gradientaccumulation", "gradient_accumulation_steps"},
    {"activationcheckpointing", "checkpoint_activations"},
    {"gradientcheckpointing", "checkpoint_activations"},
    {"checkpointactivation", "checkpoint_activations"},
    {"layerlrdecay", "layer_decay"},
    {"layerwiselrdecay", "layer_decay"},
    {"ckpt", "checkpoint"},
    {"checkpointing", "checkpoint"},
    {"manualseed", "seed"},
    {"maxiter", "max_steps"},
    {"maxiters", "max_steps"},
    {"iterations", "max_steps"},
    {"nepochs", "num_epochs"},
    {"numepoch", "num_epochs"},
    {"savesteps", "every"},
    {"evalsteps", "every"},
    {"savestrategy", "every"},
    {"numprocs", "num_processes"},
    {"threads", "num_threads"},
    {"numworker", "num_workers"},
    {"outdim", "out_features"},
    {"indim", "in_features"},
    {"inchannel", "in_channels"},
    {"outchannel", "out_channels"},
    {"numfilters", "out_channels"},
    {"ksize", "kernel_size"},
    {"momentumdecay", "momentum"},
    {"l2", "weight_decay"},
    {"weightdecayrate", "weight_decay"},
    {"logginginterval", "every_steps"},
    {"logevery", "every_steps"},
    {"logeverynsteps", "every_steps"},
});

/// A key, as recipes or other systems call it (folded) -> where a recipe has it.
constexpr auto kPlaces = std::to_array<Pairing>({
    {"lr", "optimizer.lr"},
    {"learningrate", "optimizer.lr"},
    {"baselr", "optimizer.lr"},
    {"weightdecay", "optimizer.weight_decay"},
    {"wd", "optimizer.weight_decay"},
    {"momentum", "optimizer.momentum"},
    {"betas", "optimizer.betas"},
    {"batchsize", "dataloader.batch_size"},
    {"bs", "dataloader.batch_size"},
    {"trainbatchsize", "dataloader.batch_size"},
    {"perdevicetrainbatchsize", "dataloader.batch_size"},
    {"evalbatchsize", "dataloader.eval_batch_size"},
    {"perdeviceevalbatchsize", "dataloader.eval_batch_size"},
    {"shuffle", "dataloader.shuffle"},
    {"droplast", "dataloader.drop_last"},
    {"dataloaderdroplast", "dataloader.drop_last"},
    {"numworkers", "dataloader.num_workers"},
    {"dataloadernumworkers", "dataloader.num_workers"},
    {"workers", "dataloader.num_workers"},
    {"sampler", "dataloader.sampler"},
    {"epochs", "training.num_epochs"},
    {"numepochs", "training.num_epochs"},
    {"maxepochs", "training.num_epochs"},
    {"numtrainepochs", "training.num_epochs"},
    {"maxsteps", "training.max_steps"},
    {"steps", "training.max_steps"},
    {"iterations", "training.max_steps"},
    {"gradientaccumulationsteps", "training.gradient_accumulation_steps"},
    {"accumulategradbatches", "training.gradient_accumulation_steps"},
    {"maxgradnorm", "training.max_grad_norm"},
    {"maxgradvalue", "training.max_grad_value"},
    {"clipgradvalue", "training.max_grad_value"},
    {"maxtime", "training.max_time"},
    {"lrscaling", "training.lr_scaling"},
    {"gradclip", "training.max_grad_norm"},
    {"gradientclipval", "training.max_grad_norm"},
    {"clipgradnorm", "training.max_grad_norm"},
    {"warmupsteps", "scheduler.warmup_steps"},
    {"numwarmupsteps", "scheduler.warmup_steps"},
    {"warmup", "scheduler.warmup_steps"},
    {"lrschedulertype", "scheduler.type"},
    {"layers", "model.layers"},
    {"blocks", "model.blocks"},
    {"weights", "model.weights"},
    {"pretrained", "model.weights"},
    {"init", "model.init"},
    {"freeze", "model.freeze"},
    {"unfreezeatepoch", "model.unfreeze_at_epoch"},
    {"checkpointactivations", "model.checkpoint_activations"},
    {"activationcheckpointing", "model.checkpoint_activations"},
    {"gradientcheckpointing", "model.checkpoint_activations"},
    {"layerdecay", "optimizer.layer_decay"},
    {"train", "dataset.train"},
    {"eval", "dataset.eval"},
    {"val", "dataset.eval"},
    {"valid", "dataset.eval"},
    {"validation", "dataset.eval"},
    {"test", "dataset.eval"},
    {"transforms", "dataset.transforms"},
    {"fold", "dataset.fold"},
    {"resume", "checkpoint.resume"},
    {"resumefromcheckpoint", "checkpoint.resume"},
    {"keeplast", "checkpoint.keep_last"},
    {"savetotallimit", "checkpoint.keep_last"},
    {"keepbest", "checkpoint.keep_best"},
    {"savesteps", "checkpoint.every"},
    {"savestrategy", "checkpoint.every"},
    {"monitor", "checkpoint.keep_best.monitor"},
    {"loadbestmodelatend", "checkpoint.keep_best"},
    {"metricforbestmodel", "checkpoint.keep_best.monitor"},
    {"ema", "callbacks"},
    {"swa", "callbacks"},
    {"earlystopping", "callbacks"},
    {"tta", "evaluation.tta"},
    {"evalsteps", "evaluation.every"},
    {"evalstrategy", "evaluation.every"},
    {"evaluationstrategy", "evaluation.every"},
    {"loggingsteps", "logging.every_steps"},
    {"everysteps", "logging.every_steps"},
    {"logeverynsteps", "logging.every_steps"},
    {"reportto", "logging.report_to"},
    {"bucketcapmb", "distributed.bucket_cap_mb"},
    {"findunusedparameters", "distributed.find_unused_parameters"},
    {"ddpfindunusedparameters", "distributed.find_unused_parameters"},
    {"commhook", "distributed.comm_hook"},
    {"seed", "seed"},
    {"outputdir", "output_dir"},
    {"device", "device"},
    {"numprocesses", "num_processes"},
    {"gpus", "num_processes"},
    {"numthreads", "num_threads"},
    {"fp16", "mixed_precision"},
    {"bf16", "mixed_precision"},
    {"precision", "mixed_precision"},
    {"mixedprecision", "mixed_precision"},
    {"metrics", "metrics"},
    {"loss", "loss"},
    {"criterion", "loss"},
    {"deterministic", "deterministic"},
    {"runname", "name"},
});

}  // namespace

/// Lower case without '_' and '-': "KernelSize" and "kernel_size" are the same word.
std::string folded(const std::string& word) {
  std::string result;
  for (const char c : word) {
    if (c != '_' && c != '-') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

bool is_other_name(const std::string& word, const std::string& name) {
  return std::ranges::find(kOtherSpellings, Pairing(folded(word), name)) != kOtherSpellings.end();
}

std::string place_in_recipe(const std::string& word, const std::string& path) {
  const auto* const found = std::ranges::find(kPlaces, folded(word), &Pairing::first);
  return found == kPlaces.end() || found->second == path ? "" : std::string(found->second);
}

std::string substitute_for(const std::string& component) {
  static const std::map<std::string, std::string> substitutes = {
      {"imagenet", "unpack it as image files, a folder for each class, for an ImageFolder"},
      {"imagenet1k", "unpack it as image files, a folder for each class, for an ImageFolder"},
      {"earlystopping", "it is a callback: write callbacks: [{type: EarlyStopping, patience: 3}]"},
      {"softmaxcrossentropy", "CrossEntropyLoss takes the logits; it holds the softmax"},
      {"view", "write {type: Reshape, shape: […]}, without the batch"},
      {"webdataset", "write {type: Shards, path: …}"},
      {"tensordataset", "write {type: TensorFile, path: …}"},
      {"dataframe", "write {type: CSV, path: …}"}};
  const auto it = substitutes.find(folded(component));
  return it == substitutes.end() ? "" : it->second;
}

std::string mapping_hint(const Value& value) {
  const bool of_mappings = value.is_list() && !value.items().empty() &&
                           std::all_of(value.items().begin(), value.items().end(),
                                       [](const Value& item) { return item.is_map() && item.entries().size() == 1; });
  if (of_mappings) return "; write its keys without the dashes before them";
  const bool one_mapping = value.is_list() && value.items().size() == 1 && value.items()[0].is_map();
  return one_mapping ? "; write it without the dash, or the brackets, around it" : "";
}

}  // namespace trainrun
