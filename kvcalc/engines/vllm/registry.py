"""Which classes each release of vLLM serves, by the span of releases that do; and the library's classes.

Written by ``tests/tools/read_vllm_registry.py`` from ``vllm/model_executor/models/registry.py`` of every known release and
from transformers' ``models/auto/modeling_auto.py``. Not to be edited.
"""

from __future__ import annotations

# Releases that serve them → classes.
CLASSES: dict[str, str] = {
    "0.17.0-": (
        " AXK1ForCausalLM BailingMoeV2_5ForCausalLM ColBERTJinaRobertaModel ColBERTModernBertModel"
        " ColModernVBertForRetrieval ColQwen3 FireRedASR2ForConditionalGeneration FunASRForConditionalGeneration"
        " LlamaNemotronVLForSequenceClassification LlamaNemotronVLModel OpsColQwen3Model Ovis2_6ForCausalLM"
        " Ovis2_6_MoeForCausalLM Qwen3ASRRealtimeGeneration Qwen3VLNemotronEmbedModel Qwen3_5ForConditionalGeneration"
        " Qwen3_5MoeForConditionalGeneration "
    ),
    "0.11.1-": (
        " AfmoeForCausalLM BeeForConditionalGeneration BertSpladeSparseEmbeddingModel CLIPModel DeepseekOCRForCausalLM"
        " FlexOlmoForCausalLM KimiLinearForCausalLM Lfm2MoeForCausalLM LightOnOCRForConditionalGeneration"
        " MiniMaxM2ForCausalLM ModernBertForTokenClassification PaddleOCRVLForConditionalGeneration"
        " PanguEmbeddedForCausalLM PanguUltraMoEForCausalLM Qwen3OmniMoeForConditionalGeneration SiglipModel "
    ),
    "0.33.0-": (
        " AliceAIForCausalLM Alpamayo2Super BeamForCausalLM ClefFlashForJointSchema ColUltraVBertForRetrieval"
        " D3ForSequenceClassification DomynEdgeForCausalLM DoryForCausalLM FlintForCausalLM Kolibri1ForCausalLM"
        " Lfm2BidirectionalModel MiniCPMOcrForConditionalGeneration ModernVBertModel MuseSparkForConditionalGeneration"
        " RadioMBartPrefixForCausalLM Step5ForCausalLM Step5ForConditionalGeneration "
    ),
    "0.10.2-": (
        " ApertusForCausalLM Ernie4_5_VLMoeForConditionalGeneration Gemma3TextModel GteNewForSequenceClassification"
        " InternVLForConditionalGeneration KeyeVL1_5ForConditionalGeneration Lfm2ForCausalLM MiDashengLMModel Ovis2_5"
        " Qwen3NextForCausalLM RForConditionalGeneration SeedOssForCausalLM Terratorch "
    ),
    "0.8.5-0.24.0": (
        " AquilaForCausalLM AquilaModel AyaVisionForConditionalGeneration BaiChuanForCausalLM BaichuanForCausalLM"
        " Grok1ModelForCausalLM MantisForConditionalGeneration "
    ),
    "0.10.0-": (
        " ArceeForCausalLM BailingMoeForCausalLM Exaone4ForCausalLM Glm4MoeForCausalLM HunYuanDenseV1ForCausalLM"
        " JinaVLForRanking Llama_Nemotron_Nano_VL VoxtralForConditionalGeneration "
    ),
    "0.8.5-0.28.0": (
        " ArcticForCausalLM ChameleonForConditionalGeneration Fairseq2LlamaForCausalLM GritLM MPTForCausalLM"
        " MptForCausalLM PrithviGeoSpatialMAE RWForCausalLM StableLMEpochForCausalLM "
    ),
    "0.8.5-": (
        " AriaForConditionalGeneration BertForSequenceClassification BertModel Blip2ForConditionalGeneration"
        " BloomForCausalLM ChatGLMForConditionalGeneration ChatGLMModel Cohere2ForCausalLM CohereForCausalLM"
        " DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM"
        " DeepseekVLV2ForCausalLM ExaoneForCausalLM FalconForCausalLM FalconMambaForCausalLM GLM4VForCausalLM"
        " GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM GPTNeoXForCausalLM Gemma2ForCausalLM Gemma2Model"
        " Gemma3ForCausalLM Gemma3ForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM GlmForCausalLM"
        " GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeSharedForCausalLM GraniteSpeechForConditionalGeneration"
        " GteModel H2OVLChatModel Idefics3ForConditionalGeneration InternLM2ForCausalLM InternLM2ForRewardModel"
        " InternLM3ForCausalLM InternVLChatModel JambaForCausalLM JambaForSequenceClassification"
        " KimiVLForConditionalGeneration LLaMAForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM LlamaModel"
        " LlavaForConditionalGeneration LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration"
        " LlavaOnevisionForConditionalGeneration Mamba2ForCausalLM MambaForCausalLM MiniCPM3ForCausalLM"
        " MiniCPMForCausalLM MiniCPMO MiniCPMV Mistral3ForConditionalGeneration MistralForCausalLM MistralModel"
        " MixtralForCausalLM ModernBertForSequenceClassification MolmoForCausalLM NVLM_D NemotronForCausalLM"
        " NomicBertModel OPTForCausalLM Olmo2ForCausalLM OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM"
        " PaliGemmaForConditionalGeneration Phi3ForCausalLM Phi3VForCausalLM Phi4MMForCausalLM PhiForCausalLM"
        " PhiMoEForCausalLM PixtralForConditionalGeneration Qwen2AudioForConditionalGeneration Qwen2ForCausalLM"
        " Qwen2ForProcessRewardModel Qwen2ForRewardModel Qwen2Model Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration"
        " Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM RobertaForMaskedLM"
        " RobertaForSequenceClassification RobertaModel SkyworkR1VChatModel SmolVLMForConditionalGeneration"
        " SolarForCausalLM StableLmForCausalLM Starcoder2ForCausalLM TeleChat2ForCausalLM TeleFLMForCausalLM"
        " UltravoxModel WhisperForConditionalGeneration XLMRobertaForSequenceClassification XLMRobertaModel"
        " Zamba2ForCausalLM "
    ),
    "0.13.0-": (" AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration Jais2ForCausalLM "),
    "0.11.0-": (
        " BailingMoeV2ForCausalLM BertForTokenClassification CwmForCausalLM DeepseekV32ForCausalLM DotsOCRForCausalLM"
        " LongcatFlashForCausalLM NemotronH_Nano_VL_V2 Olmo3ForCausalLM Qwen3VLForConditionalGeneration"
        " Qwen3VLMoeForConditionalGeneration "
    ),
    "0.28.0-": (
        " BailingMoeV3ForCausalLM Dots3NoteForCausalLM InternS2MobiusForConditionalGeneration MuseGlimmerForCausalLM"
        " MuseGlimmerForConditionalGeneration "
    ),
    "0.30.0-": (
        " BailingMoeV3VLForConditionalGeneration CohereCompassForConditionalGeneration DeepseekV41ForCausalLM"
        " DeepseekV4ForConditionalGeneration Glm5NextForCausalLM Glm5NextForConditionalGeneration K2HorizonForCausalLM"
        " NanbeigeForCausalLM "
    ),
    "0.8.5-0.23.0": (
        " BambaForCausalLM InternLM2VEForCausalLM InternLMForCausalLM MiniMaxText01ForCausalLM QWenLMHeadModel"
        " QwenVLForConditionalGeneration XverseForCausalLM "
    ),
    "0.8.5-0.10.2": (" BartForConditionalGeneration BartModel Florence2ForConditionalGeneration MllamaForConditionalGeneration "),
    "0.26.0-": (
        " BertForMaskedLM Cosmos3EdgeForConditionalGeneration InklingForCausalLM InklingForConditionalGeneration"
        " LongcatFlashNgramForCausalLM RobertaForTokenClassification XLMRobertaForTokenClassification "
    ),
    "0.15.0-": (
        " BgeM3EmbeddingModel Eagle2_5_VLForConditionalGeneration Glm4MoeLiteForCausalLM KimiK25ForConditionalGeneration"
        " Molmo2ForConditionalGeneration Step1ForCausalLM StepVLForConditionalGeneration "
    ),
    "0.20.0-0.28.0": (" Cheers CheersForConditionalGeneration FireRedLIDForConditionalGeneration "),
    "0.32.0-": (" ClefOmniForJointSchema EmbeddingGemma2Model MiniCPMV4_7ForConditionalGeneration "),
    "0.21.0-": (
        " Cohere2MoeForCausalLM HfMoondream LagunaForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM"
        " Moondream3ForCausalLM QianfanOCRForConditionalGeneration "
    ),
    "0.10.1-": (
        " Cohere2VisionForConditionalGeneration Emu3ForConditionalGeneration Ernie4_5ForCausalLM Gemma3nForCausalLM"
        " Glm4vMoeForConditionalGeneration GptOssForCausalLM InternS1ForConditionalGeneration Llama4ForCausalLM"
        " SmolLM3ForCausalLM Step3TextForCausalLM Step3VLForConditionalGeneration "
    ),
    "0.19.0-": (
        " CohereAsrForConditionalGeneration ColBERTLfm2Model ColQwen3_5 Gemma4ForCausalLM Gemma4ForConditionalGeneration"
        " Qwen3ASRForcedAlignerForTokenClassification "
    ),
    "0.18.0-": (
        " ColPaliForRetrieval HCXVisionV2ForCausalLM HyperCLOVAXForCausalLM MoonshotKimiaForCausalLM"
        " OlmoHybridForCausalLM SarvamMLAForCausalLM SarvamMoEForCausalLM "
    ),
    "0.23.0-": (
        " Cosmos3ForConditionalGeneration Gemma4UnifiedForConditionalGeneration"
        " GraniteSpeechPlusForConditionalGeneration Step3p7ForConditionalGeneration "
    ),
    "0.16.0-": (
        " DeepseekOCR2ForCausalLM FunAudioChatForConditionalGeneration GlmMoeDsaForCausalLM"
        " GlmOcrForConditionalGeneration HF_ColBERT InternS1ProForConditionalGeneration NemotronHPuzzleForCausalLM"
        " OpenPanguVLForConditionalGeneration Qwen3ASRForConditionalGeneration VoxtralRealtimeGeneration"
        " VoyageQwen3BidirectionalEmbedModel "
    ),
    "0.29.0-": (
        " DeepseekV3BidirectionalModel GraniteMoeSWAForCausalLM GraniteSWAForCausalLM HYV4ForCausalLM"
        " NemotronH_Omni_Reasoning_V3 Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration "
    ),
    "0.20.0-": (
        " DeepseekV4ForCausalLM Exaone4_5_ForConditionalGeneration Granite4VisionForConditionalGeneration"
        " HYV3ForCausalLM JinaEmbeddingsV5Model JinaForRanking Ministral3ForCausalLM NemotronH_Nano_Omni_Reasoning_V3"
        " NemotronH_Super_Omni_Reasoning_V3 Param2MoEForCausalLM Phi4ForCausalLMV Rnj1ForCausalLM TeleChat3ForCausalLM "
    ),
    "0.24.0-": (
        " DiffusionGemmaForBlockDiffusion HrmTextForCausalLM MiniMaxM3SparseForCausalLM"
        " MiniMaxM3SparseForConditionalGeneration MossAudioModel "
    ),
    "0.10.2-0.10.2": (" DonutForConditionalGeneration NemotronH_Nano_VL "),
    "0.9.2-0.23.0": (" Dots1ForCausalLM MiniMaxM1ForCausalLM "),
    "0.9.2-0.10.0": (" Ernie4_5_ForCausalLM "),
    "0.9.2-": (
        " Ernie4_5_MoeForCausalLM GPT2ForSequenceClassification Gemma3nForConditionalGeneration"
        " Glm4vForConditionalGeneration HunYuanMoEV1ForCausalLM KeyeForConditionalGeneration "
    ),
    "0.18.0-0.23.0": (" ErnieForSequenceClassification ErnieForTokenClassification ErnieModel "),
    "0.14.0-0.26.0,0.32.0-": (" ExaoneMoEForCausalLM "),
    "0.27.0-": (
        " ExaoneMoeForCausalLM KimiK3ForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM"
        " VaultGemmaForCausalLM VibeVoiceAsrForConditionalGeneration "
    ),
    "0.9.0-": (
        " FalconH1ForCausalLM GraniteMoeHybridForCausalLM GteNewModel MiMoForCausalLM ModernBertModel Ovis"
        " Qwen2_5OmniForConditionalGeneration "
    ),
    "0.8.5-0.25.1": (" FuyuForCausalLM PersimmonForCausalLM "),
    "0.14.0-": (
        " GlmAsrForConditionalGeneration IQuestCoderForCausalLM IQuestLoopCoderForCausalLM IsaacForConditionalGeneration"
        " KananaVForConditionalGeneration Lfm2VlForConditionalGeneration LlamaBidirectionalForSequenceClassification"
        " LlamaBidirectionalModel MiMoV2FlashForCausalLM NemotronParseForConditionalGeneration PanguProMoEV2ForCausalLM "
    ),
    "0.14.0-0.24.0": (" Grok1ForCausalLM "),
    "0.10.1-0.28.0": (" HCXVisionForCausalLM "),
    "0.12.0-": (" HunYuanVLForConditionalGeneration MistralLarge3ForCausalLM OpenCUAForConditionalGeneration Plamo3ForCausalLM "),
    "0.22.0-": (" InternS2PreviewForConditionalGeneration MiniCPMV4_6ForConditionalGeneration OpenVLAForActionPrediction "),
    "0.8.5-0.22.1": (" JAISLMHeadModel "),
    "0.25.0-": (
        " LlavaOnevision2ForConditionalGeneration MossTranscribeDiarizeForConditionalGeneration"
        " OpenAIPrivacyFilterForTokenClassification UnlimitedOCRForCausalLM "
    ),
    "0.10.1-0.10.2": (" MBartForConditionalGeneration "),
    "0.22.1-": (" MellumForCausalLM "),
    "0.10.0-0.23.0": (" MiniMaxForCausalLM "),
    "0.9.0-0.23.0": (" MiniMaxVL01ForConditionalGeneration "),
    "0.10.2-0.11.0": (" MotifForCausalLM "),
    "0.16.0-0.24.0": (" MusicFlamingoForConditionalGeneration "),
    "0.9.1-": (" NemotronHForCausalLM "),
    "0.11.1-0.26.0": (" OuroForCausalLM "),
    "0.8.5-0.9.2": (" Phi3SmallForCausalLM Qwen2ForSequenceClassification "),
    "0.10.0-0.10.2": (" Phi4FlashForCausalLM "),
    "0.10.1-0.12.0": (" Phi4MultimodalForCausalLM "),
    "0.8.5-0.26.0": (" Plamo2ForCausalLM "),
    "0.8.5-0.10.1.1": (" QuantMixtralForCausalLM "),
    "0.9.2-0.9.2": (" Qwen3ForSequenceClassification "),
    "0.15.1-": (" Step3p5ForCausalLM "),
    "0.9.2-0.24.0": (" Tarsier2ForConditionalGeneration "),
    "0.9.1-0.24.0": (" TarsierForConditionalGeneration "),
    "0.12.0-0.25.1": (" TeleChatForCausalLM "),
    "0.14.0-0.15.1": (" VoxtralStreamingGeneration "),
}

# The first of the releases of transformers read that has them → classes.
LIBRARY: dict[str, str] = {
    "4.57.6": (
        " ApertusForCausalLM ArceeForCausalLM AriaTextForCausalLM BambaForCausalLM BartForCausalLM BertLMHeadModel"
        " BertGenerationDecoder BigBirdForCausalLM BigBirdPegasusForCausalLM BioGptForCausalLM BitNetForCausalLM"
        " BlenderbotForCausalLM BlenderbotSmallForCausalLM BloomForCausalLM BltForCausalLM CamembertForCausalLM"
        " LlamaForCausalLM CodeGenForCausalLM CohereForCausalLM Cohere2ForCausalLM CpmAntForCausalLM CTRLLMHeadModel"
        " Data2VecTextForCausalLM DbrxForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM DiffLlamaForCausalLM"
        " DogeForCausalLM Dots1ForCausalLM ElectraForCausalLM Emu3ForCausalLM ErnieForCausalLM Ernie4_5ForCausalLM"
        " Ernie4_5_MoeForCausalLM Exaone4ForCausalLM FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM"
        " FlexOlmoForCausalLM FuyuForCausalLM GemmaForCausalLM Gemma2ForCausalLM Gemma3ForConditionalGeneration"
        " Gemma3ForCausalLM Gemma3nForConditionalGeneration Gemma3nForCausalLM GitForCausalLM GlmForCausalLM"
        " Glm4ForCausalLM Glm4MoeForCausalLM GotOcr2ForConditionalGeneration GPT2LMHeadModel GPTBigCodeForCausalLM"
        " GPTNeoForCausalLM GPTNeoXForCausalLM GPTNeoXJapaneseForCausalLM GptOssForCausalLM GPTJForCausalLM"
        " GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSharedForCausalLM"
        " HeliumForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM JambaForCausalLM JetMoeForCausalLM"
        " Lfm2ForCausalLM Llama4ForCausalLM LongcatFlashForCausalLM MambaForCausalLM Mamba2ForCausalLM MarianForCausalLM"
        " MBartForCausalLM MegaForCausalLM MegatronBertForCausalLM MiniMaxForCausalLM MinistralForCausalLM"
        " MistralForCausalLM MixtralForCausalLM MllamaForCausalLM ModernBertDecoderForCausalLM MoshiForCausalLM"
        " MptForCausalLM MusicgenForCausalLM MusicgenMelodyForCausalLM MvpForCausalLM NemotronForCausalLM"
        " OlmoForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM OlmoeForCausalLM OpenLlamaForCausalLM OpenAIGPTLMHeadModel"
        " OPTForCausalLM PegasusForCausalLM PersimmonForCausalLM PhiForCausalLM Phi3ForCausalLM"
        " Phi4MultimodalForCausalLM PhimoeForCausalLM PLBartForCausalLM ProphetNetForCausalLM QDQBertLMHeadModel"
        " Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM"
        " RecurrentGemmaForCausalLM ReformerModelWithLMHead RemBertForCausalLM RobertaForCausalLM"
        " RobertaPreLayerNormForCausalLM RoCBertForCausalLM RoFormerForCausalLM RwkvForCausalLM SeedOssForCausalLM"
        " SmolLM3ForCausalLM Speech2Text2ForCausalLM StableLmForCausalLM Starcoder2ForCausalLM TransfoXLLMHeadModel"
        " TrOCRForCausalLM VaultGemmaForCausalLM WhisperForCausalLM XGLMForCausalLM XLMWithLMHeadModel"
        " XLMProphetNetForCausalLM XLMRobertaForCausalLM XLMRobertaXLForCausalLM XLNetLMHeadModel xLSTMForCausalLM"
        " XmodForCausalLM ZambaForCausalLM Zamba2ForCausalLM AriaForConditionalGeneration"
        " AyaVisionForConditionalGeneration BlipForConditionalGeneration Blip2ForConditionalGeneration"
        " ChameleonForConditionalGeneration Cohere2VisionForConditionalGeneration DeepseekVLForConditionalGeneration"
        " DeepseekVLHybridForConditionalGeneration EvollaForProteinText2Text Florence2ForConditionalGeneration"
        " Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration IdeficsForVisionText2Text"
        " Idefics2ForConditionalGeneration Idefics3ForConditionalGeneration InstructBlipForConditionalGeneration"
        " InternVLForConditionalGeneration JanusForConditionalGeneration Kosmos2ForConditionalGeneration"
        " Kosmos2_5ForConditionalGeneration Lfm2VlForConditionalGeneration LlavaForConditionalGeneration"
        " LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration"
        " LlavaOnevisionForConditionalGeneration Mistral3ForConditionalGeneration Ovis2ForConditionalGeneration"
        " PaliGemmaForConditionalGeneration PerceptionLMForConditionalGeneration Pix2StructForConditionalGeneration"
        " Qwen2_5_VLForConditionalGeneration Qwen2VLForConditionalGeneration Qwen3VLForConditionalGeneration"
        " Qwen3VLMoeForConditionalGeneration SmolVLMForConditionalGeneration UdopForConditionalGeneration"
        " VipLlavaForConditionalGeneration VisionEncoderDecoderModel EncoderDecoderModel FSMTForConditionalGeneration"
        " GPTSanJapaneseForConditionalGeneration GraniteSpeechForConditionalGeneration LEDForConditionalGeneration"
        " LongT5ForConditionalGeneration M2M100ForConditionalGeneration MT5ForConditionalGeneration"
        " NllbMoeForConditionalGeneration PegasusXForConditionalGeneration Qwen2AudioForConditionalGeneration"
        " SeamlessM4TForTextToText SeamlessM4Tv2ForTextToText SwitchTransformersForConditionalGeneration"
        " T5ForConditionalGeneration T5GemmaForConditionalGeneration UMT5ForConditionalGeneration"
        " VoxtralForConditionalGeneration DiaForConditionalGeneration KyutaiSpeechToTextForConditionalGeneration"
        " MoonshineForConditionalGeneration Pop2PianoForConditionalGeneration SpeechEncoderDecoderModel"
        " Speech2TextForConditionalGeneration SpeechT5ForSpeechToText "
    ),
    "5.17.0": (
        " AfmoeForCausalLM AXK1ForCausalLM AXK2ForCausalLM Cohere2MoeForCausalLM CohereCompassForCausalLM CwmForCausalLM"
        " DeepseekV32ForCausalLM DeepseekV4ForCausalLM ExaoneMoeForCausalLM Gemma4ForConditionalGeneration"
        " Gemma4AssistantForCausalLM Gemma4ForCausalLM Gemma4UnifiedForConditionalGeneration"
        " Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForCausalLM Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM"
        " GraniteSWAForCausalLM GraniteMoeSWAForCausalLM HrmTextForCausalLM HYV3ForCausalLM HYV4ForCausalLM"
        " HyperCLOVAXForCausalLM InklingForCausalLM Jais2ForCausalLM KimiLinearForCausalLM LagunaForCausalLM"
        " Lfm2MoeForCausalLM MellumForCausalLM MiMoV2FlashForCausalLM MiniCPM3ForCausalLM MiniMaxM2ForCausalLM"
        " MiniMaxM3VLForCausalLM Ministral3ForCausalLM NanoChatForCausalLM NemotronHForCausalLM OlmoHybridForCausalLM"
        " Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen4ExpForCausalLM SolarOpenForCausalLM YoutuForCausalLM"
        " ZayaForCausalLM CohereCompassForConditionalGeneration Cosmos3EdgeForConditionalGeneration"
        " Cosmos3OmniForConditionalGeneration DeepseekOcr2ForConditionalGeneration DiffusionGemmaForBlockDiffusion"
        " Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration FastVlmForConditionalGeneration"
        " Glm46VForConditionalGeneration Glm5NextForConditionalGeneration GlmOcrForConditionalGeneration"
        " Granite4VisionForConditionalGeneration HunYuanVLForConditionalGeneration InklingForConditionalGeneration"
        " InstructBlipVideoForConditionalGeneration Kimi_K25ForConditionalGeneration LightOnOcrForConditionalGeneration"
        " MiniCPMV4_6ForConditionalGeneration MiniMaxM3SparseForConditionalGeneration Mistral4ForCausalLM"
        " MuseGlimmerForConditionalGeneration PaddleOCRVLForConditionalGeneration PI0ForConditionalGeneration"
        " PPFormulaNetForConditionalGeneration QianfanOCRForConditionalGeneration"
        " Qwen2_5OmniThinkerForConditionalGeneration Qwen3OmniMoeThinkerForConditionalGeneration"
        " Step3p7ForConditionalGeneration T5Gemma2ForConditionalGeneration VideoLlama3ForConditionalGeneration"
        " VideoLlavaForConditionalGeneration FunAsrNanoForConditionalGeneration GlmAsrForConditionalGeneration"
        " GraniteSpeechPlusForConditionalGeneration Qwen2_5OmniForConditionalGeneration Qwen3ASRForConditionalGeneration"
        " Qwen3OmniMoeForConditionalGeneration VibeVoiceAsrForConditionalGeneration"
        " VoxtralRealtimeForConditionalGeneration AudioFlamingo3ForConditionalGeneration"
        " MusicFlamingoForConditionalGeneration CanaryForConditionalGeneration CohereAsrForConditionalGeneration"
        " MoonshineStreamingForConditionalGeneration VibeVoiceForConditionalGeneration "
    ),
    "5.19.0": (" HyperCLOVAXVisionV2ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration NemotronH_Omni_Reasoning_V3 "),
    "5.20.2": (
        " BailingHybridForCausalLM BeamForCausalLM Kolibri1ForCausalLM MossTranscribeDiarizeForConditionalGeneration"
        " Molmo2ForConditionalGeneration MuseSparkForConditionalGeneration UnlimitedOcrForConditionalGeneration "
    ),
    "5.24.0": (
        " Apertus1p5TextForCausalLM DoryForCausalLM Dots3NoteForCausalLM FlintForCausalLM Inkling2LoopForCausalLM"
        " Inkling2ForCausalLM LaraMiniForCausalLM Lfm3ForCausalLM Apertus1p5ForConditionalGeneration"
        " GraniteDoclingForConditionalGeneration HYV4VLForConditionalGeneration Inkling2ForConditionalGeneration"
        " Inkling2LoopForConditionalGeneration Lfm3VlForConditionalGeneration MiniCPMOcrForConditionalGeneration"
        " MistralLarge4ForConditionalGeneration Nemotron3_5TranscribeForConditionalGeneration"
        " OmniASRForConditionalGeneration "
    ),
}

# Model type=class, for files and presets that name no class.
TYPES: dict[str, str] = {
    "": (
        " axk1=AXK1ForCausalLM axk2=AXK2ForCausalLM afmoe=AfmoeForCausalLM apertus1p5=Apertus1p5ForConditionalGeneration"
        " apertus1p5_text=Apertus1p5TextForCausalLM apertus=ApertusForCausalLM arcee=ArceeForCausalLM"
        " aria=AriaForConditionalGeneration aria_text=AriaTextForCausalLM"
        " audioflamingo3=AudioFlamingo3ForConditionalGeneration aya_vision=AyaVisionForConditionalGeneration"
        " bailing_hybrid=BailingHybridForCausalLM bamba=BambaForCausalLM bart=BartForCausalLM beam=BeamForCausalLM"
        " bert-generation=BertGenerationDecoder bert=BertLMHeadModel big_bird=BigBirdForCausalLM"
        " bigbird_pegasus=BigBirdPegasusForCausalLM biogpt=BioGptForCausalLM bitnet=BitNetForCausalLM"
        " blenderbot=BlenderbotForCausalLM blenderbot-small=BlenderbotSmallForCausalLM"
        " blip-2=Blip2ForConditionalGeneration blip=BlipForConditionalGeneration bloom=BloomForCausalLM"
        " blt=BltForCausalLM ctrl=CTRLLMHeadModel camembert=CamembertForCausalLM canary=CanaryForConditionalGeneration"
        " chameleon=ChameleonForConditionalGeneration codegen=CodeGenForCausalLM cohere2=Cohere2ForCausalLM"
        " cohere2_moe=Cohere2MoeForCausalLM cohere2_vision=Cohere2VisionForConditionalGeneration"
        " cohere_asr=CohereAsrForConditionalGeneration cohere_compass_text=CohereCompassForCausalLM"
        " cohere_compass=CohereCompassForConditionalGeneration cohere=CohereForCausalLM"
        " cosmos3_edge=Cosmos3EdgeForConditionalGeneration cosmos3_omni=Cosmos3OmniForConditionalGeneration"
        " cpmant=CpmAntForCausalLM cwm=CwmForCausalLM data2vec-text=Data2VecTextForCausalLM dbrx=DbrxForCausalLM"
        " deepseek_ocr2=DeepseekOcr2ForConditionalGeneration deepseek_v2=DeepseekV2ForCausalLM"
        " deepseek_v32=DeepseekV32ForCausalLM deepseek_v3=DeepseekV3ForCausalLM sarvam_mla=DeepseekV3ForCausalLM"
        " deepseek_v4=DeepseekV4ForCausalLM deepseek_vl=DeepseekVLForConditionalGeneration"
        " deepseek_vl_hybrid=DeepseekVLHybridForConditionalGeneration dia=DiaForConditionalGeneration"
        " diffllama=DiffLlamaForCausalLM diffusion_gemma=DiffusionGemmaForBlockDiffusion doge=DogeForCausalLM"
        " dory=DoryForCausalLM dots1=Dots1ForCausalLM dots3_note=Dots3NoteForCausalLM"
        " dots3_note_text=Dots3NoteForCausalLM electra=ElectraForCausalLM emu3=Emu3ForCausalLM"
        " encoder-decoder=EncoderDecoderModel ernie4_5=Ernie4_5ForCausalLM ernie4_5_moe=Ernie4_5_MoeForCausalLM"
        " ernie4_5_vl_moe=Ernie4_5_VLMoeForConditionalGeneration ernie=ErnieForCausalLM evolla=EvollaForProteinText2Text"
        " exaone4=Exaone4ForCausalLM exaone4_5=Exaone4_5_ForConditionalGeneration exaone_moe=ExaoneMoeForCausalLM"
        " fsmt=FSMTForConditionalGeneration falcon=FalconForCausalLM falcon_h1=FalconH1ForCausalLM"
        " falcon_mamba=FalconMambaForCausalLM fast_vlm=FastVlmForConditionalGeneration flex_olmo=FlexOlmoForCausalLM"
        " flint=FlintForCausalLM florence2=Florence2ForConditionalGeneration"
        " fun_asr_nano=FunAsrNanoForConditionalGeneration fuyu=FuyuForCausalLM gpt-sw3=GPT2LMHeadModel"
        " gpt2=GPT2LMHeadModel gpt_bigcode=GPTBigCodeForCausalLM gptj=GPTJForCausalLM gpt_neo=GPTNeoForCausalLM"
        " gpt_neox=GPTNeoXForCausalLM gpt_neox_japanese=GPTNeoXJapaneseForCausalLM"
        " gptsan-japanese=GPTSanJapaneseForConditionalGeneration gemma2=Gemma2ForCausalLM gemma3_text=Gemma3ForCausalLM"
        " gemma3=Gemma3ForConditionalGeneration shieldgemma2=Gemma3ForConditionalGeneration"
        " gemma3n_text=Gemma3nForCausalLM gemma3n=Gemma3nForConditionalGeneration"
        " gemma4_assistant=Gemma4AssistantForCausalLM gemma4_text=Gemma4ForCausalLM"
        " gemma4=Gemma4ForConditionalGeneration gemma4_unified_assistant=Gemma4UnifiedAssistantForCausalLM"
        " gemma4_unified_text=Gemma4UnifiedForCausalLM gemma4_unified=Gemma4UnifiedForConditionalGeneration"
        " gemma=GemmaForCausalLM git=GitForCausalLM glm46v=Glm46VForConditionalGeneration"
        " glmga=Glm46VForConditionalGeneration glm4=Glm4ForCausalLM glm4_moe=Glm4MoeForCausalLM"
        " sarvam_moe=Glm4MoeForCausalLM glm4_moe_lite=Glm4MoeLiteForCausalLM glm4v=Glm4vForConditionalGeneration"
        " glm4v_moe=Glm4vMoeForConditionalGeneration glm5_next=Glm5NextForConditionalGeneration"
        " glmasr=GlmAsrForConditionalGeneration glm=GlmForCausalLM glm_moe_dsa=GlmMoeDsaForCausalLM"
        " glm_ocr=GlmOcrForConditionalGeneration got_ocr2=GotOcr2ForConditionalGeneration"
        " pp_chart2table=GotOcr2ForConditionalGeneration gpt_oss=GptOssForCausalLM"
        " granite4_vision=Granite4VisionForConditionalGeneration granite_docling=GraniteDoclingForConditionalGeneration"
        " granite=GraniteForCausalLM granitemoe=GraniteMoeForCausalLM granitemoehybrid=GraniteMoeHybridForCausalLM"
        " granitemoe_swa=GraniteMoeSWAForCausalLM granitemoeshared=GraniteMoeSharedForCausalLM"
        " granite_swa=GraniteSWAForCausalLM granite_speech=GraniteSpeechForConditionalGeneration"
        " granite_speech_plus=GraniteSpeechPlusForConditionalGeneration hy_v3=HYV3ForCausalLM hy_v4=HYV4ForCausalLM"
        " hy_v4_vl=HYV4VLForConditionalGeneration helium=HeliumForCausalLM hrm_text=HrmTextForCausalLM"
        " hunyuan_v1_dense=HunYuanDenseV1ForCausalLM hunyuan_v1_moe=HunYuanMoEV1ForCausalLM"
        " hunyuan_vl=HunYuanVLForConditionalGeneration hyperclovax=HyperCLOVAXForCausalLM"
        " hyperclovax_vision_v2=HyperCLOVAXVisionV2ForConditionalGeneration idefics2=Idefics2ForConditionalGeneration"
        " idefics3=Idefics3ForConditionalGeneration idefics=IdeficsForVisionText2Text inkling2_text=Inkling2ForCausalLM"
        " inkling2=Inkling2ForConditionalGeneration inkling2_loop_text=Inkling2LoopForCausalLM"
        " inkling2_loop=Inkling2LoopForConditionalGeneration inkling_text=InklingForCausalLM"
        " inkling_mm_model=InklingForConditionalGeneration instructblip=InstructBlipForConditionalGeneration"
        " instructblipvideo=InstructBlipVideoForConditionalGeneration internvl=InternVLForConditionalGeneration"
        " jais2=Jais2ForCausalLM jamba=JambaForCausalLM janus=JanusForConditionalGeneration jetmoe=JetMoeForCausalLM"
        " kimi_linear=KimiLinearForCausalLM kimi_k25=Kimi_K25ForConditionalGeneration kolibri1=Kolibri1ForCausalLM"
        " kosmos-2=Kosmos2ForConditionalGeneration kosmos-2.5=Kosmos2_5ForConditionalGeneration"
        " kyutai_speech_to_text=KyutaiSpeechToTextForConditionalGeneration led=LEDForConditionalGeneration"
        " laguna=LagunaForCausalLM lara_mini=LaraMiniForCausalLM lfm2=Lfm2ForCausalLM lfm2_moe=Lfm2MoeForCausalLM"
        " lfm2_vl=Lfm2VlForConditionalGeneration lfm3=Lfm3ForCausalLM lfm3_vl=Lfm3VlForConditionalGeneration"
        " lighton_ocr=LightOnOcrForConditionalGeneration llama4=Llama4ForCausalLM llama4_text=Llama4ForCausalLM"
        " code_llama=LlamaForCausalLM llama=LlamaForCausalLM exaone=LlamaForCausalLM internlm3=LlamaForCausalLM"
        " iquestcoder=LlamaForCausalLM llava=LlavaForConditionalGeneration pixtral=LlavaForConditionalGeneration"
        " llava_next=LlavaNextForConditionalGeneration llava_next_video=LlavaNextVideoForConditionalGeneration"
        " llava_onevision=LlavaOnevisionForConditionalGeneration longt5=LongT5ForConditionalGeneration"
        " longcat_flash=LongcatFlashForCausalLM m2m_100=M2M100ForConditionalGeneration mbart=MBartForCausalLM"
        " mt5=MT5ForConditionalGeneration mamba2=Mamba2ForCausalLM mamba=MambaForCausalLM marian=MarianForCausalLM"
        " mega=MegaForCausalLM megatron-bert=MegatronBertForCausalLM mellum=MellumForCausalLM"
        " mimo_v2_flash=MiMoV2FlashForCausalLM minicpm3=MiniCPM3ForCausalLM"
        " minicpm_ocr=MiniCPMOcrForConditionalGeneration minicpmv4_6=MiniCPMV4_6ForConditionalGeneration"
        " minicpmv4_7=MiniCPMV4_7ForConditionalGeneration minimax=MiniMaxForCausalLM minimax_m2=MiniMaxM2ForCausalLM"
        " minimax_m3_vl=MiniMaxM3SparseForConditionalGeneration minimax_m3_vl_text=MiniMaxM3VLForCausalLM"
        " ministral3=Ministral3ForCausalLM ministral=MinistralForCausalLM mistral3=Mistral3ForConditionalGeneration"
        " mistral4=Mistral4ForCausalLM mistral=MistralForCausalLM mistral_large4=MistralLarge4ForConditionalGeneration"
        " mixtral=MixtralForCausalLM mllama=MllamaForCausalLM modernbert-decoder=ModernBertDecoderForCausalLM"
        " molmo2=Molmo2ForConditionalGeneration moonshine=MoonshineForConditionalGeneration"
        " moonshine_streaming=MoonshineStreamingForConditionalGeneration moshi=MoshiForCausalLM"
        " moss_transcribe_diarize=MossTranscribeDiarizeForConditionalGeneration mpt=MptForCausalLM"
        " muse_glimmer=MuseGlimmerForConditionalGeneration muse_spark=MuseSparkForConditionalGeneration"
        " musicflamingo=MusicFlamingoForConditionalGeneration musicgen=MusicgenForCausalLM"
        " musicgen_melody=MusicgenMelodyForCausalLM mvp=MvpForCausalLM nanochat=NanoChatForCausalLM"
        " nemo_speechlm=Nemotron3_5TranscribeForConditionalGeneration nemotron=NemotronForCausalLM"
        " nemotron_h=NemotronHForCausalLM nemotron_h_omni=NemotronH_Omni_Reasoning_V3"
        " nllb-moe=NllbMoeForConditionalGeneration opt=OPTForCausalLM olmo2=Olmo2ForCausalLM olmo3=Olmo3ForCausalLM"
        " olmo=OlmoForCausalLM olmo_hybrid=OlmoHybridForCausalLM olmoe=OlmoeForCausalLM"
        " omniasr=OmniASRForConditionalGeneration openai-gpt=OpenAIGPTLMHeadModel open-llama=OpenLlamaForCausalLM"
        " ovis2=Ovis2ForConditionalGeneration pi0=PI0ForConditionalGeneration plbart=PLBartForCausalLM"
        " pp_formulanet=PPFormulaNetForConditionalGeneration paddleocr_vl=PaddleOCRVLForConditionalGeneration"
        " paligemma=PaliGemmaForConditionalGeneration pegasus=PegasusForCausalLM"
        " pegasus_x=PegasusXForConditionalGeneration perception_lm=PerceptionLMForConditionalGeneration"
        " persimmon=PersimmonForCausalLM phi3=Phi3ForCausalLM phi4_multimodal=Phi4MultimodalForCausalLM"
        " phi=PhiForCausalLM phimoe=PhimoeForCausalLM pix2struct=Pix2StructForConditionalGeneration"
        " pop2piano=Pop2PianoForConditionalGeneration prophetnet=ProphetNetForCausalLM qdqbert=QDQBertLMHeadModel"
        " qianfan_ocr=QianfanOCRForConditionalGeneration qwen2_audio=Qwen2AudioForConditionalGeneration"
        " qwen2=Qwen2ForCausalLM qwen2_moe=Qwen2MoeForCausalLM qwen2_vl=Qwen2VLForConditionalGeneration"
        " qwen2_5_omni=Qwen2_5OmniForConditionalGeneration"
        " qwen2_5_omni_thinker=Qwen2_5OmniThinkerForConditionalGeneration qwen2_5_vl=Qwen2_5_VLForConditionalGeneration"
        " qwen3_asr=Qwen3ASRForConditionalGeneration qwen3=Qwen3ForCausalLM qwen3_moe=Qwen3MoeForCausalLM"
        " qwen3_next=Qwen3NextForCausalLM qwen3_omni_moe=Qwen3OmniMoeForConditionalGeneration"
        " qwen3_omni_moe_thinker=Qwen3OmniMoeThinkerForConditionalGeneration qwen3_vl=Qwen3VLForConditionalGeneration"
        " qwen3_vl_moe=Qwen3VLMoeForConditionalGeneration qwen3_5=Qwen3_5ForCausalLM qwen3_5_text=Qwen3_5ForCausalLM"
        " qwen3_5_moe=Qwen3_5MoeForCausalLM qwen3_5_moe_text=Qwen3_5MoeForCausalLM qwen4_exp=Qwen4ExpForCausalLM"
        " qwen4_exp_text=Qwen4ExpForCausalLM recurrent_gemma=RecurrentGemmaForCausalLM reformer=ReformerModelWithLMHead"
        " rembert=RemBertForCausalLM roc_bert=RoCBertForCausalLM roformer=RoFormerForCausalLM roberta=RobertaForCausalLM"
        " roberta-prelayernorm=RobertaPreLayerNormForCausalLM rwkv=RwkvForCausalLM seamless_m4t=SeamlessM4TForTextToText"
        " seamless_m4t_v2=SeamlessM4Tv2ForTextToText seed_oss=SeedOssForCausalLM smollm3=SmolLM3ForCausalLM"
        " smolvlm=SmolVLMForConditionalGeneration solar_open=SolarOpenForCausalLM"
        " speech_to_text_2=Speech2Text2ForCausalLM speech_to_text=Speech2TextForConditionalGeneration"
        " speech-encoder-decoder=SpeechEncoderDecoderModel speecht5=SpeechT5ForSpeechToText stablelm=StableLmForCausalLM"
        " starcoder2=Starcoder2ForCausalLM step3p7=Step3p7ForConditionalGeneration"
        " switch_transformers=SwitchTransformersForConditionalGeneration t5=T5ForConditionalGeneration"
        " t5gemma2=T5Gemma2ForConditionalGeneration t5gemma=T5GemmaForConditionalGeneration trocr=TrOCRForCausalLM"
        " transfo-xl=TransfoXLLMHeadModel umt5=UMT5ForConditionalGeneration udop=UdopForConditionalGeneration"
        " unlimited_ocr=UnlimitedOcrForConditionalGeneration vaultgemma=VaultGemmaForCausalLM"
        " vibevoice_asr=VibeVoiceAsrForConditionalGeneration vibevoice=VibeVoiceForConditionalGeneration"
        " video_llama_3=VideoLlama3ForConditionalGeneration video_llava=VideoLlavaForConditionalGeneration"
        " vipllava=VipLlavaForConditionalGeneration vision-encoder-decoder=VisionEncoderDecoderModel"
        " voxtral=VoxtralForConditionalGeneration voxtral_realtime=VoxtralRealtimeForConditionalGeneration"
        " whisper=WhisperForCausalLM xglm=XGLMForCausalLM xlm-prophetnet=XLMProphetNetForCausalLM"
        " xlm-roberta=XLMRobertaForCausalLM xlm-roberta-xl=XLMRobertaXLForCausalLM xlm=XLMWithLMHeadModel"
        " xlnet=XLNetLMHeadModel xmod=XmodForCausalLM youtu=YoutuForCausalLM zamba2=Zamba2ForCausalLM"
        " zamba=ZambaForCausalLM zaya=ZayaForCausalLM xlstm=xLSTMForCausalLM "
    ),
}
