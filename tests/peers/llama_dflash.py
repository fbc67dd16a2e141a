"""llama.cpp's `dflash` graph driven from Python: its library runs target and drafter, the loop here
is that of its common/speculative.cpp (greedy, one sequence). Needs llama-cpp-python 0.3.36.

    target, drafter = Target("target.gguf"), None
    drafter = Drafter("drafter.gguf", target)
    ids, passes = speculate(target, drafter, prompt_ids, 64, stop_ids)
"""
import ctypes

import llama_cpp
import numpy as np

LIB = llama_cpp.llama_cpp._lib
F32 = 0  # ggml's type of an exact cache


def _internal(name, result, *arguments):
    function = getattr(LIB, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


_set_layer_inp = _internal("_Z30llama_set_embeddings_layer_inpP13llama_contextjb", None,
                           ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool)
_get_layer_inp = _internal("_Z30llama_get_embeddings_layer_inpP13llama_contextj",
                           ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_uint32)
_target_layers = _internal("_Z28llama_model_target_layer_idsPK11llama_model",
                           ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p)
_num_target_layers = _internal("_Z30llama_model_target_layer_ids_nPK11llama_model",
                               ctypes.c_uint32, ctypes.c_void_p)

_silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
llama_cpp.llama_log_set(_silent, None)


class Model:
    def __init__(self, path, other=None, context=2048, threads=2):
        params = llama_cpp.llama_model_default_params()
        params.use_mmap = True
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        cparams = llama_cpp.llama_context_default_params()
        cparams.n_ctx = cparams.n_batch = cparams.n_ubatch = context
        cparams.n_threads = cparams.n_threads_batch = threads
        cparams.type_k = cparams.type_v = F32
        cparams.flash_attn_type = 0
        cparams.swa_full = True
        if other is not None:
            cparams.ctx_other = other.ctx
        self.other = other  # keeps it alive
        self.ctx = llama_cpp.llama_init_from_model(self.model, cparams)
        if not self.ctx:
            raise RuntimeError(f"llama.cpp has no context for {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.width = llama_cpp.llama_model_n_embd(self.model)

    def meta(self, key):
        buffer = ctypes.create_string_buffer(64)
        size = llama_cpp.llama_model_meta_val_str(self.model, key.encode(), buffer, 64)
        return buffer.value.decode() if size >= 0 else None

    def run(self, first, tokens=None, features=None, logits=True):
        count = len(tokens if tokens is not None else features)
        batch = llama_cpp.llama_batch_init(count, 0 if features is None else features.shape[1], 1)
        batch.n_tokens = count
        for i in range(count):
            if tokens is not None:
                batch.token[i] = int(tokens[i])
            batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = first + i, 1, 0
            batch.logits[i] = 1 if logits else 0
        if features is not None:
            rows = np.ascontiguousarray(features, dtype=np.float32)
            ctypes.memmove(batch.embd, rows.ctypes.data, rows.nbytes)
        code = llama_cpp.llama_decode(self.ctx, batch)
        llama_cpp.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode: {code}")
        if not logits:
            return None
        out = llama_cpp.llama_get_logits(self.ctx)
        return np.ctypeslib.as_array(out, (count, self.n_vocab)).copy()

    def crop(self, length):
        memory = llama_cpp.llama_get_memory(self.ctx)
        llama_cpp.llama_memory_seq_rm(memory, 0, length, -1)

    def close(self):
        llama_cpp.llama_free(self.ctx)
        llama_cpp.llama_model_free(self.model)


class Target(Model):
    layers = []

    def tap(self, layers):
        """Inputs of these layers come with every pass from now on."""
        self.layers = layers
        for layer in layers:
            _set_layer_inp(self.ctx, layer, True)

    def step(self, first, tokens):
        logits = self.run(first, tokens)
        parts = [np.ctypeslib.as_array(_get_layer_inp(self.ctx, layer),
                                       (len(tokens), self.width)).copy() for layer in self.layers]
        return logits, np.concatenate(parts, axis=1) if parts else None

    def tokenize(self, text):
        raw = text.encode()
        buffer = (ctypes.c_int32 * (len(raw) + 16))()
        count = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), buffer, len(buffer), False,
                                         True)
        return list(buffer[:count])


class Drafter(Model):
    def __init__(self, path, other=None, **kwargs):
        super().__init__(path, other, **kwargs)
        count = _num_target_layers(self.model)
        self.layers = list(_target_layers(self.model)[:count])
        self.block_size = int(self.meta("dflash.block_size") or 16)
        self.mask = llama_cpp.llama_vocab_mask(self.vocab)
        llama_cpp.llama_set_causal_attn(self.ctx, self.meta("dflash.attention.causal") == "true")

    def inject(self, first, features):
        """Context rows: target features -> keys and values at their positions."""
        self.run(first, features=features, logits=False)

    def block(self, anchor, position):
        """Logits of all slots; the block's rows do not stay in the cache."""
        logits = self.run(position, [anchor] + [self.mask] * (self.block_size - 1))
        self.crop(position)
        return logits


def speculate(target, drafter, prompt, max_new, stop_ids):
    """Greedy; -> new ids, passes of the target after the prompt's."""
    target.crop(0)
    drafter.crop(0)
    target.tap(drafter.layers)
    logits, features = target.step(0, prompt)
    drafter.inject(0, features)
    out, passes, position = [int(logits[-1].argmax())], 0, len(prompt)
    while len(out) < max_new and out[-1] not in stop_ids:
        draft = drafter.block(out[-1], position)[1:].argmax(-1).tolist()
        draft = draft[:max_new - len(out) - 1]
        logits, features = target.step(position, [out[-1]] + draft)
        drafter.inject(position, features)
        choices = logits.argmax(-1).tolist()
        accepted = 0
        while accepted < len(draft) and draft[accepted] == choices[accepted]:
            accepted += 1
        committed = choices[:accepted + 1]
        for i, token in enumerate(committed):
            if token in stop_ids:
                committed = committed[:i + 1]
                break
        out += committed
        position += len(committed)
        target.crop(position)
        drafter.crop(position)
        passes += 1
    return out, passes
