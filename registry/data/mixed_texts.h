#pragma once

#include <cstdint>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// What a label is where nothing is to be predicted: PyTorch's `ignore_index`.
constexpr int64_t kNoLabel = -100;

// Texts that are joined: some data fill their samples up and say so by attention_mask, as Chat does, others cut a text
// into blocks of one length, as TextLM does, and have no use for one.

/// Gives the infos of texts the fields that one of them has: attention_mask, position_ids; and fields whose samples are
/// filled up the greatest length of all. Infos of other data, and of texts of which none is filled up, stay as they are.
void complete_text_infos(std::vector<DatasetInfo>& infos);

/// `rows` with those fields of `info` that they lack. Without a mask a text ends with its last target that counts.
Batch completed_texts(Batch rows, const DatasetInfo& info);

}  // namespace trainrun
