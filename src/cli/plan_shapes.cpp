#include "cli/plan_shapes.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "data/dataset.h"
#include "draft/formats.h"
#include "draft/zlab.h"
#include "io/gguf.h"
#include "io/gguf_blocks.h"
#include "io/safetensors.h"
#include "jobs/drafter_sizes.h"
#include "nn/compute.h"
#include "nn/gemm_bf16.h"
#include "nn/packed.h"
#include "target/load.h"
#include "target/transformer_weights.h"
#include "train/batch.h"
#include "train/vocabulary_tiles.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

int64_t count_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

/// Bytes of the weights' files; 0 where there are none.
int64_t weight_file_bytes(const fs::path& path) {
  if (path.extension() == ".gguf") return static_cast<int64_t>(fs::file_size(path));
  int64_t bytes = 0;
  if (!fs::is_directory(path)) return bytes;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") {
      bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  return bytes;
}

void count_parameters(const target::TransformerConfig& config, plan::TargetShape& shape) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const auto& spec : target::layer_specs(config, layer, target::ExpertForm::kStacked)) {
      const int64_t elements = count_elements(spec.shape);
      shape.block_parameters += elements;
      const bool expert = spec.name.find("mlp.experts.") != std::string::npos;
      shape.active_parameters +=
          expert ? elements / config.moe.num_experts * config.moe.experts_per_token : elements;
    }
    shape.attention_blocks += config.mixer(layer) == target::Mixer::kAttention ? 1 : 0;
  }
}

/// Its config.json alone will do.
draft::DraftSpec given_drafter(const fs::path& path) {
  const fs::path config = path / "config.json";
  const bool bare = fs::is_directory(path) && fs::exists(config) && weight_file_bytes(path) == 0;
  return bare ? draft::parse_zlab_config(read_json(config), config.string())
              : draft::read_drafter_spec(path);
}

/// Weights that stay as the file has them (target/weights.h, read_blocks; nn/packed.h).
void count_kept_blocks(const fs::path& path, nn::Compute compute, plan::TargetShape& shape) {
  if (!nn::PackedWeight::keeps_blocks(compute)) return;
  const std::string head = shape.tied_embeddings ? "token_embd.weight" : "output.weight";
  const auto file = io::GgufFile::open(path);
  for (const io::GgufTensor& tensor : file->tensors()) {
    const bool halves = compute == nn::Compute::kF32 && tensor.type == io::GgufType::kBF16;
    if (!io::block_kind(tensor.type) && !halves) continue;
    const auto bytes = static_cast<int64_t>(tensor.bytes.size());
    if (tensor.name == head) shape.kept_head_bytes = bytes;
    if (!tensor.name.starts_with("blk.")) continue;
    shape.kept_block_bytes += bytes;
    shape.kept_block_parameters += static_cast<int64_t>(tensor.numel());
  }
}

/// In f32, bf16 weights of a folder stay bf16 as well.
void count_kept_halves(const fs::path& path, plan::TargetShape& shape) {
  const std::string head = shape.tied_embeddings ? "embed_tokens.weight" : "lm_head.weight";
  const auto checkpoint = io::Checkpoint::open(path);
  for (const io::TensorView& view : checkpoint->tensors()) {
    if (view.dtype != io::Dtype::kBF16) continue;
    const auto bytes = static_cast<int64_t>(view.bytes.size());
    if (view.name.ends_with(head)) shape.kept_head_bytes = bytes;
    if (view.name.find("layers.") == std::string::npos) continue;
    shape.kept_block_bytes += bytes;
    shape.kept_block_parameters += bytes / 2;
  }
}

/// Steps of an epoch with a dataset at hand.
void look_at_dataset(const jobs::TrainingOptions& options, plan::StepShape& step) {
  const data::Dataset dataset = data::load_dataset(options.dataset);
  train::RowStream stream(dataset, options.train);
  const int64_t epoch = stream.count_steps(1), asked = options.train.total_steps;
  const int64_t steps = asked > 0 ? std::min(asked, epoch) : epoch;
  step.dataset_tokens = dataset.num_tokens();
  step.row_tokens = step.pass_anchors = 0;
  int64_t tokens = 0, anchors = 0, passes = 0, pieces = 0;
  for (int64_t i = 0; i < steps; ++i) {
    for (const auto& row : stream.next_step()) {
      int64_t of_row = 0;
      for (const auto& piece : row.pieces) of_row += piece.length;
      if (of_row > step.row_tokens) {
        step.row_tokens = of_row;
        step.row_documents = static_cast<int64_t>(row.pieces.size());
      }
      step.pass_anchors =
          std::max(step.pass_anchors, std::min(row.anchors, options.train.anchors_per_pass));
      tokens += of_row;
      pieces += static_cast<int64_t>(row.pieces.size());
      anchors += row.anchors;
      passes += (row.anchors + options.train.anchors_per_pass - 1) / options.train.anchors_per_pass;
    }
  }
  step.step_tokens = tokens / steps;
  step.step_anchors = anchors / steps;
  step.step_passes = (passes + steps - 1) / steps;
  const bool whole = asked > epoch || asked == 0;
  step.mapped_tokens = whole ? dataset.num_tokens() : tokens;
  step.mapped_pieces = whole ? 1 : pieces;
}

/// Rows full of documents of one length, every token a legal anchor.
void assume_documents(const train::TrainOptions& options, int64_t document_tokens,
                      plan::StepShape& step) {
  const int64_t length = std::min(document_tokens, options.row_tokens);
  step.row_tokens = options.row_tokens;
  step.row_documents = std::max<int64_t>(1, options.row_tokens / length);
  const int64_t row_anchors =
      step.row_documents * std::min(options.anchors_per_document, std::max<int64_t>(1, length - 1));
  const int64_t rows = (options.anchors_per_step + row_anchors - 1) / row_anchors;
  const int64_t limit = options.anchors_per_pass;
  step.pass_anchors = std::min(row_anchors, limit);
  step.step_passes = rows * ((row_anchors + limit - 1) / limit);
  step.step_tokens = rows * step.row_tokens;
  step.step_anchors = rows * row_anchors;
  step.mapped_tokens = step.step_tokens;
  step.mapped_pieces = rows * step.row_documents;
}

}  // namespace

plan::TargetShape target_shape(const fs::path& path, nn::Compute compute) {
  const target::TransformerConfig config = target::read_target_config(path);
  plan::TargetShape shape{.family = config.family,
                          .hidden_size = config.hidden_size,
                          .num_layers = config.num_layers,
                          .vocab_size = config.vocab_size,
                          .q_width = config.q_rows(),
                          .kv_width = config.kv_rows(),
                          .intermediate_size = config.intermediate_size,
                          .tied_embeddings = config.tied_embeddings,
                          .file_bytes = weight_file_bytes(path)};
  if (config.has_moe()) {
    shape.intermediate_size =
        std::max(shape.intermediate_size, config.moe.experts_per_token * config.moe.expert_size +
                                              config.moe.shared_expert_size);
  }
  count_parameters(config, shape);
  if (path.extension() == ".gguf") {
    count_kept_blocks(path, compute, shape);
  } else if (compute == nn::Compute::kF32 && shape.file_bytes > 0) {
    count_kept_halves(path, shape);
  }
  const nn::DeltaShape& delta = config.delta;
  const int64_t memory = delta.value_heads * delta.key_dim * delta.value_dim;
  const int64_t rows = std::max<int64_t>(0, delta.conv_taps - 1) * delta.conv_width();
  shape.state_bytes = (config.num_layers - shape.attention_blocks) * (memory + rows) * 4;
  return shape;
}

plan::DrafterShape drafter_shape(const fs::path& path, const jobs::TrainingOptions& options) {
  const target::TransformerConfig config = target::read_target_config(path);
  draft::DraftSpec spec;
  if (!options.init_from.empty()) {
    spec = given_drafter(options.init_from);
    if (spec.target_hidden_size != config.hidden_size) {
      fail("drafter {}: expected a target of hidden size {}, this one has {}",
           options.init_from.string(), spec.target_hidden_size, config.hidden_size);
    }
  } else {
    spec = jobs::sizes_for_target(config, options.drafter);
  }
  plan::DrafterShape shape{.num_layers = spec.num_layers,
                           .block_size = spec.rule.block_size,
                           .num_taps = static_cast<int64_t>(spec.taps.size()),
                           .hidden_size = spec.hidden_size,
                           .target_hidden_size = spec.target_hidden_size,
                           .intermediate_size = spec.intermediate_size,
                           .num_heads = spec.num_heads,
                           .num_kv_heads = spec.num_kv_heads,
                           .head_dim = spec.head_dim,
                           .vocab_size = config.vocab_size};
  const auto drafted = spec.draft_ids.empty() ? options.drafter.draft_vocab
                                              : static_cast<int64_t>(spec.draft_ids.size());
  if (drafted > 0 && drafted < config.vocab_size) {
    shape.vocab_size = drafted;
    shape.reduced_vocab = true;
  }
  return shape;
}

plan::StepShape step_shape(const StepRequest& request, const plan::DrafterShape& drafter) {
  const train::TrainOptions& train = request.options.train;
  const bool muon = train.optimizer.kind == train::OptimizerKind::kMuon;
  plan::StepShape step;
  step.precision =
      request.compute == nn::Compute::kBF16 ? plan::Precision::kBF16 : plan::Precision::kF32;
  step.optimizer = muon ? plan::Optimizer::kMuon : plan::Optimizer::kAdamW;
  step.live_target = !request.stored_features;
  step.soft_loss = train.loss.needs_teacher();
  step.head_tiles = train::VocabularyTiles::supported(drafter.hidden_size);
  step.tile_products = nn::tile_products_supported(request.compute);
  step.threads = nn::num_threads();
  if (request.options.dataset.empty()) {
    assume_documents(train, request.document_tokens, step);
  } else {
    look_at_dataset(request.options, step);
  }
  return step;
}

}  // namespace dflash::cli
