#pragma once

#include <string>

#include "registry/language/value.h"

namespace trainrun {

/// How far down `model.blocks.NAME` a value lies.
enum class Region { kRoot, kModel, kBlocks, kBlock, kElsewhere };

/// Where a value lies in the recipe: a chain of steps, on the stack of the walk that is there.
struct Position {
  const Position* parent = nullptr;
  const std::string* key = nullptr;  // null for an item of a list
  size_t index = 0;
  size_t depth = 1;
  Region region = Region::kRoot;
  const Value* block = nullptr;  // the block whose body this is part of

  Position child(const Value& value, const std::string& child_key) const {
    Position next{this, &child_key, 0, depth + 1, Region::kElsewhere, block};
    if (region == Region::kRoot && child_key == "model") next.region = Region::kModel;
    if (region == Region::kModel && child_key == "blocks") next.region = Region::kBlocks;
    if (region == Region::kBlocks || region == Region::kBlock) next.region = Region::kBlock;
    if (region == Region::kBlocks) next.block = &value;
    return next;
  }
  Position item(size_t child_index) const {
    const Region next = region == Region::kBlock ? Region::kBlock : Region::kElsewhere;
    return {this, nullptr, child_index, depth + 1, next, block};
  }

  std::string path() const {
    if (!parent) return "";
    std::string text = parent->path();
    if (!key) return text + "[" + std::to_string(index) + "]";
    return text + (text.empty() ? "" : ".") + *key;
  }

  /// The recipe's key that it is below: "dataset".
  std::string section() const {
    const Position* position = this;
    while (position->parent && position->parent->parent) position = position->parent;
    return position->key ? *position->key : "";
  }

  bool has_parameter(const std::string& name) const {
    const Value* parameters = block ? block->find("parameters") : nullptr;
    return parameters && parameters->find(name);
  }
};

/// The shortest path to a key named `name`, or "".
std::string find_key(const Value& value, const std::string& name, const Position& here);

}  // namespace trainrun
