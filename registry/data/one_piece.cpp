#include "registry/data/one_piece.h"

#include <ATen/ops/arange.h>

#include <algorithm>
#include <utility>

#include "registry/data/views.h"

namespace trainrun {
namespace {

class OnePiece : public UnlabelledData {
 public:
  OnePiece(std::unique_ptr<Dataset> data, std::vector<ValueColumn> beside, int64_t begin)
      : size_(data->size()), begin_(std::min(begin, size_)), data_(std::move(data)), beside_(std::move(beside)) {}

  std::optional<Piece> next() override {
    if (!data_ || begin_ == size_) return std::nullopt;
    notes_ = data_->facts().notes();
    const int64_t count = size_ - begin_;
    Piece piece;
    for (ValueColumn& column : beside_) piece.beside.push_back(column.take(begin_, count));
    piece.samples = std::make_unique<DatasetView>(std::exchange(data_, nullptr), at::arange(begin_, size_, at::kLong));
    piece.num_read = count;
    return piece;
  }
  std::optional<int64_t> size() const override { return size_; }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  int64_t size_;
  int64_t begin_;
  std::shared_ptr<Dataset> data_;
  std::vector<ValueColumn> beside_;
  std::vector<std::string> notes_;
};

}  // namespace

std::unique_ptr<UnlabelledData> one_piece(std::unique_ptr<Dataset> data, std::vector<ValueColumn> beside,
                                          int64_t begin) {
  return std::make_unique<OnePiece>(std::move(data), std::move(beside), begin);
}

}  // namespace trainrun
